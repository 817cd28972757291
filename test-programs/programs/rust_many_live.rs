//! Promise: a million live objects of mixed sizes keep their contents through growth, and half of them freed leaves
//! the others intact.
fn main() {
    let mut live: Vec<Box<[u8]>> = Vec::new();
    let mut x = 12345u32;
    for i in 0..1_000_000usize {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        live.push(vec![i as u8; (x >> 24) as usize + 1].into_boxed_slice());
    }
    let mut i = 0usize;
    let mut kept: Vec<(usize, Box<[u8]>)> = Vec::new();
    for b in live {
        if i % 2 == 0 {
            kept.push((i, b));
        }
        i += 1;
    }
    let more: Vec<String> = (0..300_000).map(|n| format!("number {n}")).collect();
    assert!(kept.iter().all(|(i, b)| b.iter().all(|&v| v == *i as u8)));
    assert!(more.iter().enumerate().all(|(n, s)| s[7..] == n.to_string()));
}

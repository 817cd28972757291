//! Two named caches, their slabs, and who holds their objects.

use memledger::{CacheBox, KmemCache, Ledger};

#[global_allocator]
static ALLOC: Ledger = Ledger::new();

struct Conn {
    _peer: [u8; 16],
    _buffer: [u8; 184],
}

fn accept(cache: &KmemCache<Conn>) -> CacheBox<'_, Conn> {
    cache.alloc(Conn {
        _peer: [0; 16],
        _buffer: [0; 184],
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let conns = KmemCache::<Conn>::create("conn")?;
    let keys = KmemCache::<[u8; 40]>::create_aligned("key", 64)?;
    let held: Vec<_> = (0..1000).map(|_| accept(&conns)).collect();
    let key = keys.alloc([1; 40]);

    let text = memledger::slabinfo()?.to_string();
    text.lines().take(5).for_each(|line| println!("{line}"));
    for row in memledger::allocinfo()?
        .rows
        .iter()
        .filter(|r| r.file.ends_with("pools.rs") && r.bytes > 0)
    {
        println!(
            "{:>12} {:>8} {}:{} func:{}",
            row.bytes, row.calls, row.file, row.line, row.func
        );
    }

    drop(held);
    println!("{} bytes given back", conns.shrink());
    conns.destroy()?;
    CacheBox::leak(key);
    if let Err(left) = keys.destroy() {
        println!("{left}");
    }
    Ok(())
}

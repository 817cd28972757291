"""Writes a Rust program with many tags: live_tags.py TAGS OBJECTS. Each tag is an `alloc_hooks!` on a line of its own; as live.py."""
import sys

tags, objects = int(sys.argv[1]), int(sys.argv[2])
print("use memledger::alloc_hooks;\n#[global_allocator]\nstatic A: memledger::Ledger = memledger::Ledger::new();")
for i in range(tags):
    print(f"#[inline(never)]\nfn tag{i}(n: usize) -> Box<[u8]> {{\n    alloc_hooks!(vec![{i % 250}u8; n + {i % 7}].into_boxed_slice())\n}}")
print(f"static ALL: [fn(usize) -> Box<[u8]>; {tags}] = [" + ", ".join(f"tag{i}" for i in range(tags)) + "];")
print(f"""fn main() {{
    let live: Vec<_> = (0..{objects}usize).map(|k| ALL[k % {tags}](8 + (k * 7919 >> 4) % 500)).collect();
    println!("ready {{}}", std::process::id());
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
    std::process::exit(i32::from(live.len() != {objects}));
}}""")

//! Any bytes are read without a panic, and each address found is in the function that it is said to be in.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memledger_formats::kallsyms::Kallsyms;

fuzz_target!(|bytes: &[u8]| {
    let all = Kallsyms::read(bytes).expect("memory does not fail");
    for address in [0, 1, 0xffff_ffff_8100_0000, u64::MAX] {
        let Some((symbol, offset)) = all.find(address) else {
            continue;
        };
        assert_eq!(symbol.address + offset, address);
        assert!(
            all.ranges(&symbol.name)
                .iter()
                .any(|(low, _)| *low == symbol.address)
        );
    }
});

//! Names as people write them: Rust without hash, C++ without parameters and return type, C without compiler suffixes.

use cpp_demangle::{DemangleOptions, Symbol};

/// Demangles a linker name. What is no mangled name comes back as it is, but for suffixes of the compiler.
pub(crate) fn demangle(name: &str) -> String {
    let name = name.split('@').next().unwrap_or(name);
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let name = strip_clone(name);
    if name.starts_with("_Z") {
        let options = DemangleOptions::new().no_params().no_return_type();
        if let Ok(text) = Symbol::new(name)
            .map_err(drop)
            .and_then(|s| s.demangle_with_options(&options).map_err(drop))
        {
            return text;
        }
    }
    name.to_owned()
}

/// Cuts `.isra.0`, `.constprop.1`, `.part.0`, `.cold`, `.lto_priv.3` and their chains, which stand for the same source.
fn strip_clone(mut name: &str) -> &str {
    const CLONES: [&str; 7] = [
        "isra",
        "constprop",
        "part",
        "cold",
        "lto_priv",
        "localalias",
        "llvm",
    ];
    while let Some((head, tail)) = name.rsplit_once('.') {
        let number = !tail.is_empty() && tail.bytes().all(|b| b.is_ascii_digit());
        let word = if number {
            head.rsplit_once('.').map_or("", |(_, w)| w)
        } else {
            tail
        };
        if head.is_empty() || !CLONES.contains(&word) {
            break;
        }
        name = head;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn names_of_all_languages() {
        for (from, to) in [
            ("main", "main"),
            ("foo.isra.0", "foo"),
            ("foo.constprop.0.isra.1", "foo"),
            ("foo.cold", "foo"),
            ("a.b", "a.b"),
            (".text", ".text"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("_Znwm", "operator new"),
            ("_ZN3foo3barEi", "foo::bar"),
            ("_ZN3foo3barEi.part.0", "foo::bar"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back",
            ),
            (
                "_ZN5alloc7raw_vec19RawVec$LT$T$C$A$GT$8grow_one17h0123456789abcdefE",
                "alloc::raw_vec::RawVec<T,A>::grow_one",
            ),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("_Zgarbage", "_Zgarbage"),
            ("", ""),
        ] {
            assert_eq!(demangle(from), to, "{from}");
        }
    }
}

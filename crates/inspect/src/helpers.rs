//! Which functions are allocator helpers: their caller is charged.
//!
//! A helper allocates on behalf of its caller: `xmalloc`, `operator new`, `Vec::push`, but also `strdup` and `fopen` of libc,
//! and all of the Rust and C++ standard libraries: a line of those never tells where a program's memory went. The kernel does
//! the same with its `_noprof` functions. A user adds the wrappers of an own program by pattern.
//!
//! A stripped program has wrappers without a name; which those are is guessed from who calls whom ([`crate::Wrapper`]).
//!
//! Names are compared without template arguments and parameters, so that `std::vector<int, A>::push_back` is
//! `std::vector::push_back`. A trait's method `<T as Trait>::f` is taken by its type if that is a path, else by the trait;
//! a trait of `alloc` counts in any case (`<user::Id as alloc::string::ToString>::to_string` is `alloc`'s code).

use std::collections::HashSet;

/// The built-in patterns, by what they belong to.
const BUILT_IN: &[(&str, &str)] = &[
    (
        "memledger itself, and the C functions that it defines",
        "memledger* __memledger* memledger_preload::* <memledger* alloc_tag::* codetag::* \
         malloc calloc realloc reallocarray free aligned_alloc memalign posix_memalign valloc pvalloc __libc_malloc \
         __libc_calloc __libc_realloc __libc_memalign __libc_valloc __libc_pvalloc __libc_reallocarray",
    ),
    (
        "Rust: allocator shims and the standard library",
        "__rust_alloc* __rust_realloc* __rustc::* __rg_* __rdl_* __rust_no_alloc* alloc::* core::* std::* hashbrown::* \
         smallvec::* arrayvec::* indexmap::* bytes::bytes_mut::BytesMut::reserve* bytes::bytes::Bytes::copy_from_slice",
    ),
    (
        "C++: operators and the standard library",
        "operator?new* __gnu_cxx::* std::* boost::container::* boost::allocate_* __cxa_allocate_* \
         absl::container_internal::* absl::*::container_internal::* folly::*malloc* tcmalloc::*",
    ),
    (
        "libc functions that return or keep memory for their caller",
        "strdup __strdup strndup __strndup wcsdup asprintf vasprintf __asprintf __vasprintf __asprintf_chk \
         __vasprintf_chk __vasprintf_internal getline getdelim __getdelim __getline fopen fopen64 fdopen freopen \
         freopen64 _IO_new_fopen _IO_new_fdopen __fopen_internal fmemopen open_memstream open_wmemstream popen \
         _IO_file_doallocate _IO_doallocbuf _IO_new_file_overflow _IO_new_file_underflow _IO_new_file_xsputn \
         _IO_file_overflow _IO_file_underflow _IO_file_xsputn _IO_file_seekoff _IO_str_overflow _IO_wfile_doallocate \
         _IO_wdoallocbuf _IO_getdelim setvbuf realpath __realpath* canonicalize_file_name getcwd __getcwd \
         get_current_dir_name opendir fdopendir __opendir __alloc_dir scandir scandir64 scandirat glob glob64 wordexp \
         regcomp re_compile_internal qsort qsort_r __qsort_r tsearch __tsearch hcreate_r hsearch_r getaddrinfo \
         setenv putenv __add_to_environ argz_* envz_* obstack_* _obstack_* iconv_open getpwnam getpwuid getgrnam getgrgid \
         backtrace_symbols sem_open atexit __cxa_atexit __new_exitfn on_exit",
    ),
    (
        "Common names of malloc wrappers",
        "xmalloc xcalloc xrealloc xreallocarray xnmalloc xnrealloc xzalloc xcharalloc x2realloc x2nrealloc xpalloc xstrdup \
         xstrndup xmemdup xmemdup0 xmemdupz xasprintf xvasprintf xmalloc_* xcalloc_* xrealloc_* ximalloc xicalloc \
         xirealloc xireallocarray x_malloc x_calloc x_realloc safe_malloc safe_calloc safe_realloc safe_strdup \
         emalloc ecalloc erealloc estrdup estrndup my_malloc my_realloc my_strdup mem_alloc mem_calloc mem_realloc \
         checked_malloc xmallocz xmallocz_gently do_xmalloc do_xmallocz xmmap*",
    ),
    (
        "GLib and GObject",
        "g_malloc* g_try_malloc* g_realloc* g_try_realloc* g_calloc* g_new* g_memdup* g_strdup* g_strndup g_strdup_* \
         g_slice_alloc* g_slice_copy g_aligned_alloc* g_strconcat g_strjoin* g_strsplit* g_string_*  g_vasprintf \
         g_array_* g_ptr_array_* g_byte_array_* g_list_append g_list_prepend g_slist_append g_slist_prepend \
         g_type_create_instance g_object_new* g_hash_table_new* g_hash_table_insert* g_hash_table_maybe_resize \
         g_hash_table_resize",
    ),
    (
        "redis",
        "zmalloc zcalloc zrealloc zmalloc_* zcalloc_* zrealloc_* ztrymalloc* ztrycalloc* ztryrealloc* zstrdup \
         extend_to_usable sds_malloc sds_realloc s_malloc s_realloc _sdsnewlen sdsnewlen sdstrynewlen sdsnew sdsdup sdsempty \
         sdsMakeRoomFor _sdsMakeRoomFor sdsMakeRoomForNonGreedy hi_malloc hi_calloc hi_realloc hi_strdup lp_malloc \
         lp_realloc l_alloc luaM_* luaH_resize",
    ),
    (
        "SQLite",
        "sqlite3MemMalloc sqlite3MemRealloc memsys5* sqlite3Malloc sqlite3MallocZero sqlite3Realloc sqlite3_malloc* \
         sqlite3_realloc* sqlite3DbMalloc* sqlite3DbRealloc* sqlite3DbStrDup sqlite3DbStrNDup sqlite3DbSpanDup \
         mallocWithAlarm sqlite3PageMalloc pcache1Alloc pcache1AllocPage pcache1InitBulk sqlite3StrAccumEnlarge \
         sqlite3StrAccumFinish sqlite3_str_append* strAccumFinishRealloc dbMallocRawFinish dbReallocFinish \
         sqlite3VdbeMemGrow sqlite3VdbeMemClearAndResize",
    ),
    (
        "CPython",
        "PyMem_* _PyMem_* PyObject_Malloc PyObject_Calloc PyObject_Realloc _PyObject_Malloc _PyObject_Calloc \
         _PyObject_Realloc _PyObject_GC_* PyObject_GC_* gc_alloc _PyObject_New* PyObject_New* _PyObject_NewVar \
         PyType_GenericAlloc _PyType_AllocNoTrack pymalloc_alloc new_arena allocate_from_new_pool",
    ),
    (
        "Perl",
        "Perl_safesysmalloc Perl_safesyscalloc Perl_safesysrealloc Perl_safesys* Perl_malloc Perl_calloc Perl_realloc \
         Perl_savepv Perl_savepvn Perl_savesvpv Perl_more_bodies Perl_sv_grow S_more_sv S_new_SV Perl_sv_add_arena",
    ),
    (
        "OpenSSL, GnuTLS, zlib, libxml2, curl",
        "CRYPTO_malloc CRYPTO_zalloc CRYPTO_realloc CRYPTO_clear_realloc CRYPTO_strdup CRYPTO_strndup CRYPTO_memdup \
         OPENSSL_malloc OPENSSL_zalloc OPENSSL_realloc gnutls_malloc _gnutls_* gcry_malloc* gcry_xmalloc* _gcry_malloc* \
         zcalloc zlib_alloc default_zalloc xmlMalloc* xmlStrdup xmlStrndup xmlMemMalloc Curl_*alloc Curl_saferealloc",
    ),
    (
        "git",
        "strbuf_grow strbuf_add strbuf_addf strbuf_addstr strbuf_vaddf mem_pool_alloc mem_pool_calloc \
         mem_pool_alloc_block mem_pool_strdup alloc_node st_mult",
    ),
    (
        "GCC, binutils, LLVM",
        "ggc_* ggc_internal_* alloc_page init_ggc_* mempool_obstack_chunk_alloc bfd_malloc* bfd_alloc* bfd_zalloc* bfd_zmalloc* \
         bfd_realloc* va_heap::* vec_alloc vec_safe_* memory_block_pool::* object_allocator::* base_pool_allocator::* \
         llvm::safe_malloc llvm::safe_calloc llvm::safe_realloc llvm::allocate_buffer llvm::MallocAllocator::* \
         llvm::BumpPtrAllocatorImpl::* llvm::SmallVectorBase::* llvm::SmallVectorTemplateBase::* llvm::SmallVectorImpl::* \
         llvm::StringMapImpl::* llvm::DenseMap::* llvm::DenseMapBase::* llvm::User::operator?new* clang::*::operator?new*",
    ),
    (
        "node and V8",
        "node::Malloc node::Calloc node::Realloc node::UncheckedMalloc node::UncheckedCalloc node::UncheckedRealloc \
         node::*Allocator::Allocate* v8::internal::Malloced::* v8::internal::AllocWithRetry \
         v8::internal::AlignedAlloc* v8::base::Malloc v8::base::Calloc v8::base::Realloc v8::base::AlignedAlloc \
         v8::internal::NewArray v8::internal::StrDup v8::internal::AccountingAllocator::* v8::internal::Zone::* \
         uv__malloc uv__calloc uv__realloc uv__strdup uv__strndup",
    ),
    (
        "bash, readline, ncurses",
        "sh_xmalloc sh_xrealloc sh_malloc sh_calloc sh_realloc _nc_doalloc _rl_*alloc ocache_alloc",
    ),
    (
        "Other allocators, when their functions only forward",
        "je_malloc je_calloc je_realloc je_aligned_alloc je_mallocx je_rallocx je_posix_memalign mi_* _mi_* \
         rpmalloc rpcalloc rprealloc talloc_* _talloc_* apr_palloc apr_pcalloc apr_pstrdup ngx_alloc ngx_calloc \
         ngx_palloc* ngx_pcalloc ngx_pnalloc palloc palloc0 palloc_extended repalloc MemoryContextAlloc* AllocSet* pstrdup \
         lzma_alloc lzma_alloc_zero",
    ),
];

/// Patterns for functions that allocate on behalf of their caller. `Default` has the built-in ones, and guesses.
#[derive(Debug, Clone)]
pub struct Helpers {
    exact: HashSet<String>,
    /// Text before a final `*`.
    prefixes: Vec<String>,
    globs: Vec<String>,
    guess: bool,
}

impl Default for Helpers {
    fn default() -> Self {
        let mut helpers = Helpers::empty();
        helpers.guess = true;
        for pattern in BUILT_IN
            .iter()
            .flat_map(|(_, list)| list.split_ascii_whitespace())
        {
            helpers.add(pattern);
        }
        helpers
    }
}

impl Helpers {
    /// A list without the built-in patterns and without guesses.
    pub fn empty() -> Self {
        Helpers {
            exact: HashSet::new(),
            prefixes: Vec::new(),
            globs: Vec::new(),
            guess: false,
        }
    }

    /// Whether functions without a name may be taken for helpers too, by who calls them ([`Wrapper`](crate::Wrapper)).
    pub fn set_guess(&mut self, guess: bool) {
        self.guess = guess;
    }

    /// As [`Helpers::set_guess`] has it.
    pub fn guess(&self) -> bool {
        self.guess
    }

    /// The built-in patterns: (what they belong to, patterns).
    pub fn built_in() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
        BUILT_IN
            .iter()
            .map(|(what, list)| (*what, list.split_ascii_whitespace().collect()))
    }

    /// Adds a pattern: a function's name without parameters and template arguments. `*` stands for any text, `?` for one
    /// character.
    pub fn add(&mut self, pattern: &str) {
        match pattern.strip_suffix('*') {
            _ if pattern.is_empty() => {}
            Some(prefix) if !prefix.contains(['*', '?']) => self.prefixes.push(prefix.to_owned()),
            None if !pattern.contains(['*', '?']) => {
                self.exact.insert(pattern.to_owned());
            }
            _ => self.globs.push(pattern.to_owned()),
        }
    }

    /// Adds the patterns of a file's text: one a line, `#` begins a comment.
    pub fn add_lines(&mut self, text: &str) {
        for line in text.lines() {
            self.add(line.split('#').next().unwrap_or("").trim());
        }
    }

    /// Is the demangled function a helper?
    pub fn is_helper(&self, func: &str) -> bool {
        // libc's own symbols have names for internal use beside the public ones: `__GI_strdup`.
        let func = func.strip_prefix("__GI_").unwrap_or(func);
        if self.matches(func) || of_primitive(func) {
            return true;
        }
        let (name, of_trait) = keys(func);
        self.matches(&name) || of_trait.is_some_and(|t| self.matches(&t))
    }

    fn matches(&self, name: &str) -> bool {
        self.exact.contains(name)
            || self.prefixes.iter().any(|p| name.starts_with(p.as_str()))
            || self
                .globs
                .iter()
                .any(|g| glob(g.as_bytes(), name.as_bytes()))
    }
}

/// Whether it is an inherent method of a primitive type, as `<str>::repeat`: only the standard library has those.
fn of_primitive(func: &str) -> bool {
    let inner = func.starts_with('<').then(|| qualified(func)).flatten();
    // A type of a crate has a path; a slice is the standard library's whatever is in it.
    inner.is_some_and(|(ty, _)| !ty.contains(" as ") && (ty.starts_with('[') || !ty.contains("::")))
}

/// The names that a function is looked up by: its path without arguments, and that of its trait if that counts.
fn keys(func: &str) -> (String, Option<String>) {
    let Some((inner, rest)) = func.starts_with('<').then(|| qualified(func)).flatten() else {
        return (strip_arguments(func), None);
    };
    let rest = strip_arguments(rest);
    let Some((ty, of_trait)) = inner.split_once(" as ") else {
        return (strip_arguments(inner) + &rest, None);
    };
    let ty = strip_arguments(
        ty.trim_start_matches(['&', '*', '[', '('])
            .trim_start_matches("mut "),
    );
    let of_trait = strip_arguments(of_trait) + &rest;
    if !ty.contains("::") {
        // A primitive or a type parameter.
        return (of_trait, None);
    }
    let counts = of_trait.starts_with("alloc::");
    (ty + &rest, counts.then_some(of_trait))
}

/// Splits `<inner>rest` at the bracket that closes the first.
fn qualified(func: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    let bytes = func.as_bytes();
    for (i, b) in bytes.iter().enumerate() {
        match b {
            b'<' => depth += 1,
            // Not the arrow of a function type.
            b'>' if i > 0 && bytes[i - 1] != b'-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((&func[1..i], &func[i + 1..]));
        }
    }
    None
}

/// Takes out `<...>` and a final `(...)`; the signs of `operator<` and its like stay.
fn strip_arguments(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut depth = 0usize;
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if depth == 0 && out.ends_with("operator") && matches!(c, '<' | '>' | '-' | '(') {
            let sign = rest.len()
                - rest
                    .trim_start_matches(['<', '>', '=', '-', '(', ')'])
                    .len();
            // `operator<<int>` has a sign and arguments.
            let sign = [
                "<=>", "<<=", ">>=", "->*", "<<", ">>", "->", "<=", ">=", "()", "<", ">", "-",
            ]
            .iter()
            .find(|s| rest[..sign].starts_with(**s))
            .map_or(1, |s| s.len());
            out.push_str(&rest[..sign]);
            rest = &rest[sign..];
            continue;
        }
        match c {
            '<' => depth += 1,
            '>' if !rest.is_empty()
                && depth > 0
                && !name[..name.len() - rest.len()].ends_with('-') =>
            {
                depth -= 1
            }
            _ if depth == 0 => out.push(c),
            _ => {}
        }
        rest = &rest[c.len_utf8()..];
    }
    // Rust writes `Vec<T>::push` and `Vec::<T>::push`.
    let mut out = out.replace("::::", "::");
    if out.ends_with(')')
        && let Some(open) = out
            .find('(')
            .filter(|&o| o > 0 && !out[..o].ends_with("::") && !out[..o].ends_with("operator"))
    {
        out.truncate(open);
    }
    out
}

/// Does the whole text fit? Greedy, with one place to go back to: the last star.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t, mut back) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                back = Some((p, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => (p, t) = (p + 1, t + 1),
            _ => {
                let Some((star, from)) = back else {
                    return false;
                };
                back = Some((star, from + 1));
                (p, t) = (star + 1, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_of_all_kinds() {
        let helpers = Helpers::default();
        for name in [
            "xmalloc",
            "operator new",
            "operator new[]",
            "operator new(unsigned long)",
            "std::vector<int, std::allocator<int> >::_M_realloc_insert<int>",
            "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::_M_create",
            "__gnu_cxx::new_allocator<std::pair<int const, int> >::allocate",
            "alloc::vec::Vec<T,A>::push",
            "<str>::repeat",
            "<[alloc::string::String]>::to_vec",
            "__GI___strdup",
            "__GI__IO_file_doallocate",
            "<alloc::vec::Vec<u8>>::reserve",
            "<alloc::string::String as core::clone::Clone>::clone",
            "<T as alloc::slice::<impl [T]>::to_vec_in::ConvertVec>::to_vec",
            "<str as alloc::borrow::ToOwned>::to_owned",
            "<user::Id as alloc::string::ToString>::to_string",
            "hashbrown::raw::RawTable<T,A>::reserve_rehash",
            "__rust_alloc_zeroed",
            "__rustc::__rust_alloc",
            "PyMem_RawMalloc",
            "sqlite3DbMallocRawNN",
            "Perl_safesysrealloc",
            "g_malloc0_n",
            "llvm::DenseMap<int, int>::grow",
            "clang::ASTContext::operator new",
        ] {
            assert!(helpers.is_helper(name), "{name} {:?}", keys(name));
        }
        for name in [
            "main",
            "user::parse",
            "<user::Id as core::clone::Clone>::clone",
            "<user::List<alloc::vec::Vec<u8>>>::push",
            "user::main::{{closure}}",
            "dictResize",
            "mystd::vector<int>::push_back",
            "my_std_alloc",
            "Foo::operator<< <int>",
            "",
            "<",
            "a>b<c",
        ] {
            assert!(!helpers.is_helper(name), "{name} {:?}", keys(name));
        }
        assert_eq!(
            strip_arguments("Foo<int>::operator<<<char>"),
            "Foo::operator<<"
        );
        assert_eq!(strip_arguments("Foo::operator()"), "Foo::operator()");
        assert_eq!(strip_arguments("f(int)"), "f");
        assert_eq!(
            strip_arguments("(anonymous namespace)::f"),
            "(anonymous namespace)::f"
        );
    }

    #[test]
    fn own_patterns() {
        let mut helpers = Helpers::empty();
        helpers.add_lines("# mine\npool_*\n *::make_? # any\nexact\n\n");
        assert!(helpers.is_helper("pool_get"));
        assert!(helpers.is_helper("a::b::make_x"));
        assert!(helpers.is_helper("exact"));
        assert!(
            !helpers.is_helper("make_xy")
                && !helpers.is_helper("exactly")
                && !helpers.is_helper("xmalloc")
        );
    }
}

//! What the attribute writes.

use crate::args::{Args, Form};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{
    Attribute, FnArg, GenericParam, Ident, ItemFn, Pat, Path, Safety, Signature, Visibility,
};

pub(crate) fn alloc_hooks_fn(args: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let args: Args = syn::parse2(args)?;
    let original: ItemFn = syn::parse2(item)?;
    let mut function = original.clone();
    let outer = Outer {
        name: original.sig.ident.clone(),
        noprof: format_ident!("{}_noprof", original.sig.ident),
        attrs: original.attrs.iter().filter(|a| is_shared(a)).collect(),
        vis: &original.vis,
        sig: &original.sig,
    };
    let has_receiver = original.sig.receiver().is_some();
    let made = match args.form {
        Form::Auto if !has_receiver => outer.by_macro(&args)?,
        _ => outer.by_caller(&args, has_receiver)?,
    };
    function.attrs.push(pointer(&outer.name, &outer.noprof));
    function.sig.ident = outer.noprof.clone();
    Ok(quote! { #function #made })
}

/// Last paragraph of the documentation of `foo_noprof`.
fn pointer(name: &Ident, noprof: &Ident) -> Attribute {
    let text = format!(
        "\n\n`{noprof}` charges what it allocates to the current tag or the call stack; `{name}` charges its caller."
    );
    syn::parse_quote!(#[doc = #text])
}

/// Attributes that both forms have.
fn is_shared(attribute: &Attribute) -> bool {
    ["doc", "cfg", "must_use", "deprecated"]
        .iter()
        .any(|name| attribute.path().is_ident(name))
}

struct Outer<'a> {
    name: Ident,
    noprof: Ident,
    attrs: Vec<&'a Attribute>,
    vis: &'a Visibility,
    sig: &'a Signature,
}

impl Outer<'_> {
    /// `foo!`.
    fn by_macro(&self, args: &Args) -> syn::Result<TokenStream> {
        let Outer {
            name, noprof, vis, ..
        } = self;
        // `must_use` is for functions.
        let attrs = self.attrs.iter().filter(|a| !a.path().is_ident("must_use"));
        let hooks = &args.hooks;
        let r#async = self.sig.asyncness;
        let target = match (&args.path, vis) {
            (Some(path), _) => quote!(#path::#noprof),
            (None, Visibility::Public(_)) => quote!(crate::#noprof),
            (None, _) => quote!(#noprof),
        };
        let export = matches!(vis, Visibility::Public(_)).then(|| {
            let export = export_name(args.path.as_ref(), name);
            quote!(as #export)
        });
        Ok(quote! {
            #hooks::alloc_hooks_macro! {
                #(#attrs)*
                #vis macro #name #export => #r#async #target;
            }
        })
    }

    /// A function that finds its caller at run time.
    fn by_caller(&self, args: &Args, has_receiver: bool) -> syn::Result<TokenStream> {
        let refuse = |what: &dyn quote::ToTokens, text| Err(syn::Error::new_spanned(what, text));
        if let Some(word) = &self.sig.asyncness {
            return refuse(
                word,
                "an async function cannot see its caller: use `.alloc_tagged(..)` on its future",
            );
        }
        if let Some(dots) = &self.sig.variadic {
            return refuse(
                dots,
                "the arguments of a variadic function cannot be passed on",
            );
        }
        let Outer {
            name,
            noprof,
            attrs,
            vis,
            ..
        } = self;
        let mut sig = self.sig.clone();
        sig.ident = name.clone();
        sig.constness = None;
        let values = rename_arguments(&mut sig);
        let generics = turbofish(&sig);
        let callee = match (has_receiver, args.form) {
            (true, _) => quote!(self.#noprof),
            (false, Form::Method) => quote!(Self::#noprof),
            (false, _) => quote!(#noprof),
        };
        let mut call = quote!(#callee #generics (#(#values),*));
        if let safety @ Safety::Unsafe(_) = &sig.safety {
            call = quote!(#safety { #call });
        }
        let hooks = &args.hooks;
        Ok(quote! {
            #(#attrs)*
            #[track_caller]
            #[inline]
            #vis #sig {
                #hooks::charge_caller(move || #call)
            }
        })
    }
}

/// A name at the crate's root that no other function has.
fn export_name(path: Option<&Path>, name: &Ident) -> Ident {
    let mut text = String::from("__alloc_hooks");
    for part in path.iter().flat_map(|p| &p.segments).skip(1) {
        text.push('_');
        text.push_str(&part.ident.to_string());
    }
    format_ident!("{text}_{name}")
}

/// Gives each argument a plain name; returns the names without the receiver.
fn rename_arguments(sig: &mut Signature) -> Vec<Ident> {
    let mut names = Vec::new();
    for input in &mut sig.inputs {
        match input {
            FnArg::Receiver(receiver) => {
                // `mut self` is the function's own affair. (The `mut` of `&mut self` is of its kind.)
                receiver.mutability = None;
            }
            FnArg::Typed(typed) => {
                let name = format_ident!("__arg{}", names.len());
                *typed.pat = Pat::Verbatim(quote!(#name));
                names.push(name);
            }
        }
    }
    names
}

/// Types and constants that inference might not find. Allowed beside `impl Trait` arguments, which are never written.
fn turbofish(sig: &Signature) -> Option<TokenStream> {
    let names: Vec<_> = sig
        .generics
        .params
        .iter()
        .filter_map(|param| match param {
            GenericParam::Type(t) => Some(&t.ident),
            GenericParam::Const(c) => Some(&c.ident),
            _ => None,
        })
        .collect();
    (!names.is_empty()).then(|| quote!(::<#(#names),*>))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(args: TokenStream, item: TokenStream) -> String {
        alloc_hooks_fn(args, item).unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        let method = quote!(
            async fn f(&self) {}
        );
        assert!(refused(quote!(), method).contains("async"));
        assert!(
            refused(
                quote!(caller),
                quote!(
                    async fn f() {}
                )
            )
            .contains("async")
        );
        assert!(
            refused(
                quote!(path = pool),
                quote!(
                    fn f() {}
                )
            )
            .contains("begin with `crate`")
        );
        assert!(
            refused(
                quote!(module),
                quote!(
                    fn f() {}
                )
            )
            .contains("expected `path")
        );
        assert!(
            refused(
                quote!(method caller),
                quote!(
                    fn f() {}
                )
            )
            .contains("expected `,`")
        );
        assert!(
            !refused(
                quote!(),
                quote!(
                    struct S;
                )
            )
            .is_empty()
        );
    }

    #[test]
    fn attributes_go_where_they_mean_something() {
        let item = quote! {
            /// Text.
            #[cfg(unix)]
            #[must_use]
            #[inline(never)]
            pub(crate) fn f() -> u8 { 0 }
        };
        let text = alloc_hooks_fn(quote!(), item.clone()).unwrap().to_string();
        let (function, hook) = text.split_once("alloc_hooks_macro").unwrap();
        assert!(
            ["must_use", "inline", "Text", "cfg"]
                .iter()
                .all(|w| function.contains(w))
        );
        assert!(hook.contains("Text") && hook.contains("cfg"));
        assert!(!hook.contains("must_use") && !hook.contains("inline"));
        let text = alloc_hooks_fn(quote!(caller), item).unwrap().to_string();
        assert_eq!(text.matches("must_use").count(), 2);
        assert_eq!(text.matches("inline (never)").count(), 1);
        assert_eq!(text.matches("track_caller").count(), 1);
    }
}

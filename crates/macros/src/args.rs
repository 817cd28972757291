//! The arguments of the attribute.

use syn::parse::{Parse, ParseStream};
use syn::{Path, Token};

/// How `foo` is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As the function asks for: a macro, or a method if it has a receiver.
    Auto,
    /// A `#[track_caller]` associated function.
    Method,
    /// A `#[track_caller]` free function.
    Caller,
}

pub(crate) struct Args {
    pub(crate) form: Form,
    /// Module of the function.
    pub(crate) path: Option<Path>,
    /// Where the hooks are.
    pub(crate) hooks: Path,
}

impl Parse for Args {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut args = Args {
            form: Form::Auto,
            path: None,
            hooks: syn::parse_quote!(::memledger),
        };
        while !input.is_empty() {
            args.one(input)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(args)
    }
}

impl Args {
    fn one(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        if input.peek(Token![crate]) {
            input.parse::<Token![crate]>()?;
            input.parse::<Token![=]>()?;
            self.hooks = input.call(Path::parse_mod_style)?;
            return Ok(());
        }
        let word: syn::Ident = input.parse()?;
        match word.to_string().as_str() {
            "method" => self.form = Form::Method,
            "caller" => self.form = Form::Caller,
            "path" => {
                input.parse::<Token![=]>()?;
                let path = input.call(Path::parse_mod_style)?;
                if path.leading_colon.is_some() || path.segments[0].ident != "crate" {
                    return Err(syn::Error::new_spanned(
                        path,
                        "the path must begin with `crate`",
                    ));
                }
                self.path = Some(path);
            }
            _ => {
                return Err(syn::Error::new(
                    word.span(),
                    "expected `path = crate::..`, `crate = ..`, `method` or `caller`",
                ));
            }
        }
        Ok(())
    }
}

//! The macros in a crate that forbids what they are made of, and the ways in which a hook can be left.
#![forbid(unsafe_code)]
#![deny(warnings, clippy::all, missing_docs, unreachable_pub)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use alloc_tag::{CodeTag, alloc_hooks, alloc_hooks_tag, alloc_tag, current, runtime, tag_row};

/// Line of the current tag; 0 = none.
fn line() -> u32 {
    tag_row(current()).map_or(0, |row| row.line())
}

#[test]
fn inner_wins_and_outer_comes_back() {
    assert!(runtime::start_local() && runtime::start_local());
    let lines = alloc_hooks!([line(), alloc_hooks!(line()), line()]);
    let here = line!() - 1;
    assert_eq!((lines, line()), ([here; 3], 0));
    let row = alloc_hooks!(tag_row(current())).unwrap();
    let here = line!() - 1;
    assert_eq!((row.file(), row.line()), (file!(), here));
    assert!(row.module().is_empty());
    assert_eq!(
        (row.module_path(), row.func()),
        ("user", "user::inner_wins_and_outer_comes_back")
    );
    let column = alloc_hooks!([current(), alloc_hooks!(current())])
        .map(|index| tag_row(index).unwrap().column());
    assert!(column[0] < column[1]);
}

#[test]
fn every_way_out_restores() {
    assert!(runtime::start_local());
    fn question(text: &str) -> Result<u8, std::num::ParseIntError> {
        alloc_hooks!({
            let n: u8 = text.parse()?;
            Ok(n)
        })
    }
    fn early(flag: bool) -> u32 {
        alloc_hooks!(if flag {
            return current();
        });
        current()
    }
    let outer = alloc_tag!();
    alloc_hooks_tag!(outer, {
        assert!(question("1").is_ok() && current() == outer.index());
        assert!(question("x").is_err() && current() == outer.index());
        assert!(early(true) > outer.index() || early(true) < outer.index());
        assert_eq!(early(false), outer.index());
        for _ in 0..2 {
            alloc_hooks!(continue);
        }
        assert_eq!(current(), outer.index());
        let caught = catch_unwind(AssertUnwindSafe(|| {
            alloc_hooks!(std::panic::resume_unwind(Box::new(current())))
        }));
        assert_ne!(
            *caught.unwrap_err().downcast::<u32>().unwrap(),
            outer.index()
        );
        assert_eq!(current(), outer.index());
    });
    assert_eq!(current(), 0);
}

#[test]
fn values_and_types_pass_through() {
    assert!(runtime::start_local());
    let mut list = vec![1];
    let last: &mut i32 = alloc_hooks!(list.last_mut().unwrap());
    *last = 2;
    let length = alloc_hooks!(String::from("four").as_str().len());
    let moved = alloc_hooks!(move || list);
    assert_eq!((moved(), length), (vec![2], 4));
    // An unregistered tag changes nothing, and a trailing comma is fine.
    static STRAY: CodeTag = CodeTag::new("f", "m", || "", 1, 1);
    let seen = alloc_hooks!((current(), alloc_hooks_tag!(&STRAY, current(),)),);
    assert!(seen.0 != 0 && seen.0 == seen.1);
}

#[test]
fn threads_do_not_see_each_other() {
    assert!(runtime::start_local());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    assert_eq!(current(), 0);
                    let (a, b) = alloc_hooks!((line(), alloc_hooks!(current())));
                    assert_eq!((a, tag_row(b).unwrap().line()), (line!() - 1, line!() - 1));
                    std::thread::yield_now();
                }
            });
        }
    });
}

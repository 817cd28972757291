//! A plugin for the test `modules`: it asks its host for memory, under tags of its own.

use alloc_tag::{alloc_hooks, charge_caller};

type Take = extern "C" fn(usize) -> *mut u8;

#[track_caller]
fn library(take: Take, bytes: usize) -> *mut u8 {
    charge_caller(|| take(bytes))
}

/// Memory charged to a static tag.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_take(take: Take, bytes: usize) -> *mut u8 {
    alloc_hooks!(take(bytes))
}

/// Memory charged to a tag made at run time.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_take_by_caller(take: Take, bytes: usize) -> *mut u8 {
    library(take, bytes)
}

//! Parsers and printers of the kernel's memory accounting formats.
//!
//! One rule for all of them: accept what any kernel prints, never panic, never hold a whole file in memory, and report
//! what could not be read instead of dropping it.
//!
//! - [`allocinfo`]: `/proc/allocinfo` versions 1.0 and 2.0, which is also what memledger itself prints; totals, sorting
//!   and filtering of its rows.
//! - [`kallsyms`]: `/proc/kallsyms`, names of code addresses of a kernel.
//! - [`page_owner`]: `/sys/kernel/debug/page_owner` and the files of `page_owner_stacks`.
//! - [`oom`]: the largest rows in a kernel's log, when memory ran out.
//! - [`size`]: sizes as the kernel, `numfmt` and people write them.
//! - [`slabinfo`]: `/proc/slabinfo`, which memledger prints of a program, too.
//! - [`trace`]: allocation traces of kernels and programs, and what they add up to.
//!
//! # Features
//! `serde`: `Serialize` for [`allocinfo::Row`], [`allocinfo::Total`] and [`slabinfo::Cache`].
#![forbid(unsafe_code)]

pub mod allocinfo;
pub mod kallsyms;
pub mod oom;
pub mod page_owner;
pub mod size;
pub mod slabinfo;
pub mod trace;

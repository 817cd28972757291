//! Parsers and printers of the kernel's memory accounting formats.

//! The C allocation functions and operator new, for unmodified programs.

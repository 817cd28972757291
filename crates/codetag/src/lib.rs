//! Static source-location tags in a linker section, and a registry of the modules that bring them.

//! Key-value drives, tested as hosts see them.

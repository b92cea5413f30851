//! Canary.

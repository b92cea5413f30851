//! Lists of keys, and the directory behind them.

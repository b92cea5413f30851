//! Experiments that need sockets, other programs and a real clock. Those in virtual time are in `lab/experiments/`.
//!
//! | module | noun |
//! |---|---|
//! | `kv_target` | the experiment on values as one Store or as blocks with an index |
//! | `ox_copies` | the experiment on copies of the payload, over NVMe/TCP |
//! | `ox_lightlsm` | the experiment on RocksDB on a table drive |
//! | `ycsb_rocksdb` | the experiment on the mixes of YCSB, on a key-value drive and with RocksDB on everything else |
//! | `bounced` | a device behind a bounce buffer |
//! | `stack` | what RocksDB stands on |
//! | `ext4` | ext4 on a served block drive |
//! | `rocksdb` | RocksDB's programs |

mod bounced;
mod ext4;
mod kv_target;
mod ox_copies;
mod ox_lightlsm;
mod rocksdb;
mod stack;
mod ycsb_rocksdb;

use openftl_experiments::Experiment;

/// All of them.
pub const ALL: [&Experiment; 4] =
    [&kv_target::EXPERIMENT, &ox_copies::EXPERIMENT, &ox_lightlsm::EXPERIMENT, &ycsb_rocksdb::EXPERIMENT];

//! `values`: what a host says to a key-value drive, and what a drive sends to a host.
//!
//! ```text
//!   ┌ even ┬ 64 bytes of a command, once or more ┐      ┌ odd ┬ a list of keys ┐
//! ```

use openftl_nvme::command::ValueCommand;
use openftl_nvme::namespace::{Attached, NAMESPACES_MAX, NamespaceSet};
use openftl_nvme::wire::values::ValuesNamespace;
use openftl_nvme::{Io, IoCommand, Namespace, NamespaceKind, SubmissionEntry, ValueShape};
use openftl_values::keys_of_list;
use zerocopy::FromBytes;

const SHAPE: ValueShape = ValueShape { capacity_bytes: 1 << 30, keys_max: 1 << 20, key_max: 12, drive_value_max: 9000 };

/// What is accepted is inside the limits, and is written the same way.
pub fn run(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    if kind % 2 == 1 {
        list(rest);
        if let Ok((data, _)) = ValuesNamespace::read_from_prefix(rest) {
            _ = data.current_format().map(|format| format.value_max);
        }
        return;
    }
    let mut all = [const { None }; NAMESPACES_MAX as usize];
    all[0] = Some(Namespace { id: 1, uuid: [1; 16], kind: NamespaceKind::Values(SHAPE) });
    let mut set = NamespaceSet::default();
    set.insert(1);
    for entry in rest.chunks_exact(64) {
        let entry = SubmissionEntry::of(entry.try_into().expect("64 bytes"));
        let Ok(io) = Io::parse(entry, Attached { all: &all, set }, false) else { continue };
        let IoCommand::Value(command) = io.command else { continue };
        match command {
            ValueCommand::Store { key, bytes, .. } => {
                assert!(bytes <= SHAPE.value_max() && key.length() <= SHAPE.key_max, "{command:?}");
            }
            ValueCommand::List { bytes, .. } => assert!(bytes >= 4, "{command:?}"),
            ValueCommand::Retrieve { key, .. } | ValueCommand::Delete { key, .. } | ValueCommand::Exist { key } => {
                assert!((1..=SHAPE.key_max).contains(&key.length()), "{command:?}");
            }
        }
        let again = Io::parse(&command.entry(1), Attached { all: &all, set }, false).map(|io| io.command);
        assert_eq!(again, Ok(IoCommand::Value(command)));
    }
}

fn list(bytes: &[u8]) {
    let Some(keys) = keys_of_list(bytes) else { return };
    let mut written = (keys.len() as u32).to_le_bytes().to_vec();
    for key in &keys {
        written.extend(u16::from(key.length()).to_le_bytes());
        written.extend(key.bytes());
        written.resize(written.len().next_multiple_of(4), 0);
    }
    // What stands behind a key is not looked at.
    assert_eq!(written.len(), bytes.len());
    assert_eq!(keys_of_list(&written).as_ref(), Some(&keys));
}

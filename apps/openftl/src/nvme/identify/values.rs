//! What a key-value namespace says of itself.

use super::line;
use crate::failure::Failure;
use crate::nvme::association::Association;
use openftl_core::units::ByteSize;
use openftl_lab::picture::thousands;
use openftl_nvme::wire::identify::{cns, csi};
use openftl_nvme::wire::values::ValuesNamespace;
use serde::Serialize;
use zerocopy::FromBytes;

/// See the module.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValuesFacts {
    capacity_bytes: u64,
    used_bytes: u64,
    /// Bytes of a key, at most.
    key_max: u16,
    /// Bytes of a value, at most.
    value_max: u32,
    /// Keys that there may be; 0: it is not said.
    keys_max: u32,
}

impl ValuesFacts {
    /// Asks for what the Key Value command set has of the namespace.
    pub fn ask(association: &mut Association, id: u32) -> Result<ValuesFacts, Failure> {
        let data = association.admin.identify_of_set(cns::COMMAND_SET_NAMESPACE, id, csi::VALUES);
        let data = data.map_err(|error| association.failure(error))?;
        let data = ValuesNamespace::read_from_bytes(&data).expect("a data structure has 4096 bytes");
        let format = &data.value_formats[usize::from(data.format & 0xf)];
        Ok(ValuesFacts {
            capacity_bytes: data.size.get(),
            used_bytes: data.utilization.get(),
            key_max: format.key_max.get(),
            value_max: format.value_max.get(),
            keys_max: format.keys_max.get(),
        })
    }

    pub fn write(&self, text: &mut String) {
        let ValuesFacts { capacity_bytes, used_bytes, key_max, value_max, keys_max } = *self;
        line(text, "capacity", ByteSize(capacity_bytes));
        line(text, "in use", ByteSize(used_bytes));
        let most = if keys_max == 0 { String::new() } else { format!(", {} at most", thousands(keys_max.into())) };
        line(text, "keys", format_args!("1 to {key_max} bytes each{most}"));
        line(text, "values", format_args!("0 to {value_max} bytes"));
    }
}

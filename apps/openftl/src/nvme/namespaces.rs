//! The ids of the namespaces that a controller has attached.

use super::association::Association;
use super::channel::Channel;
use crate::failure::Failure;
use openftl_nvme::wire::identify::cns;
use openftl_nvme_tcp::ClientError;
use openftl_nvme_tcp::client::Client;

/// All of them.
pub fn active(association: &mut Association) -> Result<Vec<u32>, Failure> {
    listed(association, |admin, after| admin.identify(cns::ACTIVE_NAMESPACES, after))
}

/// Those of a command set, which CSI stands for. A controller that does not know it has none.
pub fn of_set(association: &mut Association, command_set: u8) -> Result<Vec<u32>, Failure> {
    listed(association, |admin, after| {
        match admin.identify_of_set(cns::COMMAND_SET_ACTIVE_NAMESPACES, after, command_set) {
            Err(ClientError::Refused { .. }) => Ok(Vec::new()),
            list => list,
        }
    })
}

/// List by list: each is of the ids above the last one of the list before.
fn listed(
    association: &mut Association,
    mut list_after: impl FnMut(&mut Client<Channel>, u32) -> Result<Vec<u8>, ClientError>,
) -> Result<Vec<u32>, Failure> {
    let mut ids: Vec<u32> = Vec::new();
    loop {
        let list = list_after(&mut association.admin, ids.last().copied().unwrap_or(0));
        let list = list.map_err(|error| association.failure(error))?;
        let before = ids.len();
        let all = list.chunks_exact(4).map(|id| u32::from_le_bytes(id.try_into().expect("four bytes")));
        for id in all.take_while(|id| *id != 0) {
            if id <= ids.last().copied().unwrap_or(0) {
                return Err(Failure::failed(format_args!("the list of namespaces is out of order at {id}")));
            }
            ids.push(id);
        }
        if list.is_empty() || ids.len() - before < list.len() / 4 {
            return Ok(ids);
        }
    }
}

//! Directives: what a host has enabled to be said with its writes, and the commands about it (Base, "Directives").

use super::{Context, Controller};
use crate::command::Refusal;
use crate::command::admin::Directive;
use crate::data_placement::handle_of;
use crate::hints::{HintState, Hints};
use crate::namespace::{ALL_NAMESPACES, Namespace, NamespaceSet, TRANSFER_BYTES_MAX};
use crate::wire::SubmissionEntry;
use crate::wire::directive::{DirectiveParameters, ENABLE, StreamParameters, kind, receive, send};
use crate::wire::status::Status;
use openftl_core::{BLOCK_BYTES, Time};
use openftl_parts::words::Handle;
use zerocopy::{FromZeros, IntoBytes};

/// The best size of a write to a stream: one transaction.
const STREAM_WRITE_BYTES: u64 = TRANSFER_BYTES_MAX as u64;

/// What a host has enabled, the same with all its controllers.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Directives {
    /// Where Streams are enabled.
    pub streams: NamespaceSet,
    /// Where Data Placement is disabled; elsewhere it is enabled, if the namespace has it.
    pub no_placement: NamespaceSet,
}

impl Directives {
    /// A Controller Level Reset: Streams have to be enabled again, and Data Placement stays as it is.
    pub fn reset(&mut self) {
        self.streams = NamespaceSet::default();
    }

    /// A namespace is another one from now on.
    pub fn forget(&mut self, id: u32) {
        self.streams.remove(id);
        self.no_placement.remove(id);
    }

    /// The one directive of a namespace that is enabled, if any.
    fn enabled(&self, namespace: &Namespace) -> Option<u8> {
        let id = namespace.id;
        match namespace.hints() {
            Hints::Streams { .. } => self.streams.contains(id).then_some(kind::STREAMS),
            Hints::DataPlacement { .. } => (!self.no_placement.contains(id)).then_some(kind::DATA_PLACEMENT),
            Hints::None | Hints::Objects => None,
        }
    }
}

/// DTYPE of an I/O command, bits 23 to 20 of dword 12.
#[inline]
fn kind_said(entry: &SubmissionEntry) -> u8 {
    (entry.dword(12) >> 20) as u8 & 0xf
}

/// Whether any namespace of the subsystem has directives.
pub(super) fn has_directives(context: &Context<'_>) -> bool {
    context.namespaces.iter().flatten().any(|namespace| namespace.hints().has_directives())
}

/// The directive that a namespace can have enabled.
fn supported(namespace: &Namespace) -> Option<u8> {
    match namespace.hints() {
        Hints::Streams { .. } => Some(kind::STREAMS),
        Hints::DataPlacement { .. } => Some(kind::DATA_PLACEMENT),
        Hints::None | Hints::Objects => None,
    }
}

/// Whether an I/O command says a directive, if it is one that may.
#[inline]
pub(super) fn says_directive(entry: &SubmissionEntry) -> bool {
    kind_said(entry) != 0
}

impl Controller {
    /// The handle of a write that says a directive: DTYPE, and DSPEC, bits 31 to 16 of dword 13. Both are ignored where no
    /// directive is enabled. A write with a placement identifier that means nothing is one without, and an event. Also whether
    /// the handle was another stream's until now.
    #[inline]
    pub(super) fn handle(
        &self,
        now: Time,
        entry: &SubmissionEntry,
        namespace: &Namespace,
        states: &mut [HintState],
    ) -> Result<(Handle, bool), Refusal> {
        let Some(enabled) = self.directives.enabled(namespace) else { return Ok((Handle::NONE, false)) };
        if kind_said(entry) != enabled {
            return Err(Status::INVALID_FIELD.at(50).bit(4));
        }
        let specific = (entry.dword(13) >> 16) as u16;
        let state = &mut states[namespace.id as usize - 1];
        let Hints::DataPlacement { handles, .. } = namespace.hints() else { return Ok(state.streams.write(specific)) };
        let handle = handle_of(specific, handles).unwrap_or_else(|| {
            state.events.invalid_identifier(specific, namespace.id, self.features.timestamp(now));
            Handle::NONE
        });
        Ok((handle, false))
    }

    /// Serves Directive Send and Directive Receive. Returns dword 0; data are appended to `out`.
    pub(super) fn directive(
        &mut self,
        command: &Directive,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Result<u64, Refusal> {
        if !has_directives(context) {
            return Err(Status::INVALID_OPCODE.at(0));
        }
        match (command.kind, command.is_send, command.operation) {
            (kind::IDENTIFY, false, receive::PARAMETERS) => self.directive_parameters(command, context, out),
            (kind::IDENTIFY, true, send::ENABLE) => self.enable_directive(command, context),
            (kind::STREAMS, false, receive::PARAMETERS) => self.stream_parameters(command, context, out),
            (kind::STREAMS, false, receive::STREAMS_STATUS) => self.stream_status(command, context, out),
            (kind::STREAMS, false, receive::ALLOCATE_STREAMS) => {
                let state = self.streams(command, context)?;
                // NSR and NSA, bits 15 to 0.
                match state.streams.allocate(command.value as u16) {
                    Some(0) if command.value as u16 > 0 => Err(Status::STREAM_RESOURCES_FAILED.into()),
                    Some(allocated) => Ok(u64::from(allocated)),
                    None => Err(Status::INVALID_FIELD.into()),
                }
            }
            (kind::STREAMS, true, send::RELEASE_STREAM) => {
                self.streams(command, context)?.streams.release(command.specific);
                Ok(0)
            }
            (kind::STREAMS, true, send::RELEASE_STREAMS) => {
                self.streams(command, context)?.streams.give_back();
                Ok(0)
            }
            (kind::IDENTIFY | kind::STREAMS, ..) => Err(Status::INVALID_FIELD.at(44)),
            // Data Placement has no operations of its own.
            _ => Err(Status::INVALID_FIELD.at(45)),
        }
    }

    /// "Return Parameters" of Identify.
    fn directive_parameters(
        &self,
        command: &Directive,
        context: &Context<'_>,
        out: &mut Vec<u8>,
    ) -> Result<u64, Refusal> {
        if command.namespace == ALL_NAMESPACES {
            return Err(Status::INVALID_FIELD.at(4));
        }
        let namespace = self.attached(context).get(command.namespace)?;
        let bits = |directive: Option<u8>| directive.map_or(0, |kind| 1 << kind);
        let mut data = DirectiveParameters::new_zeroed();
        data.supported[0] = 1 << kind::IDENTIFY | bits(supported(namespace));
        data.enabled[0] = 1 << kind::IDENTIFY | bits(self.directives.enabled(namespace));
        data.persistent[0] = bits(supported(namespace).filter(|kind| *kind == kind::DATA_PLACEMENT));
        append(data.as_bytes(), command.bytes, out);
        Ok(0)
    }

    /// "Enable Directive" of Identify.
    fn enable_directive(&mut self, command: &Directive, context: &Context<'_>) -> Result<u64, Refusal> {
        let (wanted, is_enabled) = ((command.value >> 8) as u8, command.value & ENABLE != 0);
        let attached = self.attached(context);
        let namespaces: Vec<&Namespace> = match (command.namespace, wanted) {
            (ALL_NAMESPACES, kind::STREAMS) => {
                attached.iter().filter(|namespace| supported(namespace) == Some(wanted)).collect()
            }
            (id, kind::STREAMS | kind::DATA_PLACEMENT) => vec![attached.get(id)?],
            _ => return Err(Status::INVALID_FIELD.at(49)),
        };
        if wanted == kind::DATA_PLACEMENT && !namespaces.iter().all(|namespace| namespace.hints().is_data_placement()) {
            return Err(Status::FDP_DISABLED.into());
        }
        if namespaces.is_empty() || namespaces.iter().any(|namespace| supported(namespace) != Some(wanted)) {
            // Where Flexible Data Placement is enabled it is the operation that cannot be.
            return Err(Status::INVALID_FIELD.at(44));
        }
        for namespace in namespaces {
            let is_in_set = if wanted == kind::STREAMS { is_enabled } else { !is_enabled };
            let set = match wanted {
                kind::STREAMS => &mut self.directives.streams,
                _ => &mut self.directives.no_placement,
            };
            if is_in_set {
                set.insert(namespace.id);
            } else {
                set.remove(namespace.id);
            }
        }
        Ok(0)
    }

    /// The streams of the namespace that a command is about, where they are enabled.
    fn streams<'a>(&self, command: &Directive, context: &'a mut Context<'_>) -> Result<&'a mut HintState, Refusal> {
        if command.namespace == ALL_NAMESPACES {
            return Err(Status::INVALID_FIELD.at(4));
        }
        let namespace = self.attached(context).get(command.namespace)?;
        if self.directives.enabled(namespace) != Some(kind::STREAMS) {
            return Err(Status::INVALID_FIELD.at(45));
        }
        Ok(&mut context.hint_states[namespace.id as usize - 1])
    }

    /// "Return Parameters" of Streams.
    fn stream_parameters(
        &self,
        command: &Directive,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Result<u64, Refusal> {
        let mut data = StreamParameters::new_zeroed();
        data.capability = StreamParameters::SHARED_IDENTIFIERS;
        let all = context.hint_states.iter().map(|state| &state.streams);
        data.streams_max = all.clone().map(|streams| streams.most()).sum::<u16>().into();
        let available = all.clone().map(|streams| streams.most() - streams.allocated()).sum::<u16>();
        data.subsystem_available = available.into();
        let common = all.filter(|streams| streams.allocated() == 0);
        data.subsystem_open = (common.map(|streams| streams.open().len()).sum::<usize>() as u16).into();
        if command.namespace != ALL_NAMESPACES {
            let streams = &self.streams(command, context)?.streams;
            (data.allocated, data.open) = (streams.allocated().into(), (streams.open().len() as u16).into());
            let namespace = self.attached(context).get(command.namespace)?;
            let Hints::Streams { unit_blocks, .. } = namespace.hints() else { unreachable!("streams are enabled") };
            data.write_blocks = ((STREAM_WRITE_BYTES >> namespace.block_bytes_log2()) as u32).into();
            let writes = (unit_blocks * BLOCK_BYTES as u64).div_ceil(STREAM_WRITE_BYTES);
            data.granularity_writes = u16::try_from(writes).unwrap_or(u16::MAX).into();
        }
        append(data.as_bytes(), command.bytes, out);
        Ok(0)
    }

    /// "Get Status" of Streams.
    fn stream_status(&self, command: &Directive, context: &mut Context<'_>, out: &mut Vec<u8>) -> Result<u64, Refusal> {
        let open = if command.namespace == ALL_NAMESPACES {
            let common = context.hint_states.iter().map(|state| &state.streams);
            let mut open: Vec<u16> =
                common.filter(|streams| streams.allocated() == 0).flat_map(|streams| streams.open()).collect();
            open.sort_unstable();
            open.dedup();
            open
        } else {
            self.streams(command, context)?.streams.open()
        };
        let mut data = (open.len() as u16).to_le_bytes().to_vec();
        open.iter().for_each(|stream| data.extend_from_slice(&stream.to_le_bytes()));
        append(&data, command.bytes, out);
        Ok(0)
    }
}

/// Appends as many bytes as the host wants: no more than there are, and zeroes behind them.
fn append(data: &[u8], bytes: u32, out: &mut Vec<u8>) {
    let bytes = bytes as usize;
    out.extend_from_slice(&data[..data.len().min(bytes)]);
    out.resize(bytes, 0);
}

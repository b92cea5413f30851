//! The login of a host consists of its Connect command and, where the host has to show who it is, of the messages of an
//! authentication.

use openftl_nvme::controller::Authentication;
use openftl_nvme::{Answer, Connection as Connected, HostId, Status, SubmissionEntry};
use openftl_nvme_auth::{Computed, Step};
use openftl_nvme_tcp::target::Slot;
use tracing::{info, warn};

use super::{NvmeConnection, Stage, Turn};
use crate::fabric::names_of;
use crate::key_worker::{JobTicket, Source};
use crate::link::Over;
use crate::parting::Parting;
use crate::{Protocol, ServedDrive};

impl NvmeConnection {
    /// Serves the Connect command.
    pub(super) fn connect<T: ServedDrive>(
        &mut self,
        slot: Slot,
        data: Option<&[u8]>,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let entry = self.commands[slot.index()].as_ref().expect("it has begun").entry;
        if let Some(data) = data
            && !turn.fabric.admits(self.link.shown(), data)
        {
            let (connection, peer) = (self.link.number, self.link.peer);
            let (host, subsystem) = names_of(data).unwrap_or_default();
            let reason = "TLS has shown another host, or the host has to use TLS and does not";
            warn!(target: "nvme", connection, %peer, host, subsystem, reason, "host refused");
            return self.finish(slot, Answer::from(Status::CONNECT_INVALID_HOST), turn);
        }
        match turn.fabric.target.connect(turn.now, SubmissionEntry::of(&entry), data) {
            Connected::Needs(bytes) => self.collect(slot, bytes, turn),
            Connected::Made(queue, completion) => {
                // SQSIZE and CATTR of Connect (Base, "Connect Command").
                let entries = usize::from(u16::from_le_bytes([entry[44], entry[45]])) + 1;
                self.session.open_queue(entries, entry[46] & 0b100 == 0);
                let host = turn.fabric.target.controller(&queue).map_or("", |made| &made.host().nqn);
                let (connection, peer) = (self.link.number, self.link.peer);
                info!(
                    target: "connection",
                    connection,
                    %peer,
                    protocol = %Protocol::NvmeTcp,
                    host,
                    subsystem = %turn.fabric.target.subsystem_nqn(&queue),
                    controller = queue.controller().id,
                    queue = queue.id(),
                    "connection opened"
                );
                if queue.is_admin() && host.is_empty() {
                    turn.counters.hosts_without_name.add(1);
                    warn!(target: "nvme", connection, %peer, "host without a name (HOSTNQN) let in");
                }
                if let (Some(authority), false) = (&turn.fabric.authority, queue.is_authenticated()) {
                    self.authentication = authority.begin(turn.now, &turn.fabric.target, &queue).map(Box::new);
                }
                self.host = turn.fabric.target.controller(&queue).map_or(HostId::default(), |made| made.host().id);
                self.queue = Some(queue);
                self.send_completion(slot, &completion);
                Ok(())
            }
            Connected::Refused(completion) => {
                let (connection, peer) = (self.link.number, self.link.peer);
                let (host, subsystem) = data.and_then(names_of).unwrap_or_default();
                let status = completion.status().of_fabrics();
                warn!(target: "nvme", connection, %peer, host, subsystem, status, "host refused");
                self.send_completion(slot, &completion);
                self.link.close_because(Parting::Connect(completion.status()));
                Ok(())
            }
        }
    }

    /// Takes or gives a message of the authentication.
    pub(super) fn authenticate<T: ServedDrive>(
        &mut self,
        slot: Slot,
        message: Authentication,
        data: Option<&[u8]>,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let (Some(controller), Some(authority)) = (&mut self.authentication, &mut turn.fabric.authority) else {
            return self.finish(slot, Answer::from(Status::INVALID_OPCODE), turn);
        };
        turn.fabric.authentication_steps_left = turn.fabric.authentication_steps_left.saturating_sub(1);
        let work = match message {
            Authentication::Message { bytes } => {
                data.and_then(|data| data.get(..bytes as usize)).and_then(|message| controller.work_to_send(message))
            }
            Authentication::Wanted { bytes } => controller.work_to_receive(bytes as usize, &mut authority.nonces),
        };
        if let Some(work) = work {
            let queue = self.queue.as_ref().expect("there is a queue");
            let host = turn.fabric.target.controller(queue).map_or("", |controller| &controller.host().nqn);
            let source = Source::of(self.link.socket(), host);
            let ticket = JobTicket { slot: turn.slot, generation: turn.generation, command: slot };
            authority.worker.line_up(ticket, source, work);
            let command = self.commands[slot.index()].as_mut().expect("it has begun");
            // It is still booked.
            command.heap = data.map_or_else(Vec::new, <[u8]>::to_vec);
            command.stage = Stage::Computing(message);
            return Ok(());
        }
        let (payload, step) = match message {
            Authentication::Message { bytes } => {
                let message = data.and_then(|data| data.get(..bytes as usize)).expect("as many bytes were collected");
                (Vec::new(), controller.send(turn.now, message))
            }
            Authentication::Wanted { bytes } => {
                match controller.receive(turn.now, bytes as usize, &mut authority.nonces) {
                    Ok(answer) => answer,
                    Err(_) => return self.finish(slot, Answer::from(Status::INVALID_FIELD), turn),
                }
            }
        };
        let queue = self.queue.as_mut().expect("there is a queue");
        queue.set_authenticated(controller.is_authenticated());
        let (connection, peer) = (self.link.number, self.link.peer);
        let host = || turn.fabric.target.controller(queue).map_or("", |controller| &controller.host().nqn);
        match step {
            Step::Continue => {}
            Step::Authenticated => info!(target: "nvme", connection, %peer, host = host(), "host authenticated"),
            Step::Close(refusal) => {
                warn!(target: "nvme", connection, %peer, host = host(), reason = %refusal, "authentication refused");
                self.link.close_because(Parting::Authentication(refusal));
            }
        }
        self.finish_with(slot, Answer::from(Status::SUCCESS), &payload, turn)
    }

    /// Goes on with a message of an authentication, whose key or secret has been computed.
    pub fn computed<T: ServedDrive>(
        &mut self,
        slot: Slot,
        computed: Computed,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let Some(command) = self.commands.get_mut(slot.index()).and_then(Option::as_mut) else { return Ok(()) };
        let Stage::Computing(message) = command.stage else { return Ok(()) };
        if let Some(controller) = &mut self.authentication {
            controller.computed(computed);
        }
        command.stage = Stage::Running;
        let data = std::mem::take(&mut command.heap);
        self.authenticate(slot, message, Some(&data), turn)
    }
}

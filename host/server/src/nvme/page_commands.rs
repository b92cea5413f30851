//! Commands of stores of pages that are answered at once, and the ends of the others.

use openftl_nvme::command::PageCommand;
use openftl_nvme::command::pages::refusal_of;
use openftl_nvme::wire::pages::{PAGE_BYTES_MAX, PageStat, StoreReport, read_result};
use openftl_nvme::{Answer, IoCommand};
use openftl_nvme_tcp::target::Slot;
use openftl_pages::{SessionId, StoreError};
use zerocopy::IntoBytes;

use super::{NvmeConnection, Turn};
use crate::ServedDrive;
use crate::link::Over;
use crate::page_request::PageFinished;

impl NvmeConnection {
    /// Opens the session whose identifier has come.
    pub(super) fn open_session<T: ServedDrive>(
        &mut self,
        slot: Slot,
        data: &[u8],
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let command = self.commands[slot.index()].as_ref().expect("its data came");
        let owner = self.queue.as_ref().expect("there is a queue").controller();
        let id = SessionId(*data.first_chunk().expect("they are as many as were asked for"));
        let (drive, sessions) = turn.served[command.export].sessions().expect("a store of pages");
        match sessions.open(owner, id, drive) {
            Ok((session, durable)) => {
                self.finish(slot, Answer::of(u64::from(session) | (durable & 0xffff_ffff) << 32), turn)
            }
            Err(error) => self.refuse(slot, refusal_of(&error, 0), turn),
        }
    }

    /// Answers a command that needs neither data of the host nor pages of the medium.
    pub(super) fn answer_page_command<T: ServedDrive>(
        &mut self,
        slot: Slot,
        command: PageCommand,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let export = self.commands[slot.index()].as_ref().expect("it has just begun").export;
        let owner = self.queue.as_ref().expect("there is a queue").controller();
        let (drive, sessions) = turn.served[export].sessions().expect("a store of pages");
        let mut data = Vec::new();
        let done: Result<(), StoreError> = match command {
            PageCommand::Close { session, forget } => sessions.close(turn.now, owner, session, forget, drive),
            PageCommand::Abort { session, wsn } => sessions.abort(turn.now, owner, session, wsn, drive),
            PageCommand::Session { session } => sessions.report(owner, session, drive).map(|report| {
                data.extend_from_slice(report.as_bytes());
            }),
            PageCommand::Store => {
                let report = StoreReport {
                    pages: drive.pages().into(),
                    used_bytes: drive.used_bytes().into(),
                    capacity_bytes: drive.capacity_bytes().into(),
                    page_bytes_max: drive.page_bytes_max().min(PAGE_BYTES_MAX).into(),
                    reserved: 0.into(),
                };
                data.extend_from_slice(report.as_bytes());
                Ok(())
            }
            PageCommand::Write(_)
            | PageCommand::Read { .. }
            | PageCommand::Open
            | PageCommand::Stat { .. }
            | PageCommand::List { .. } => {
                unreachable!("these are requests, or wait for data")
            }
        };
        match done {
            Ok(()) => self.finish_with(slot, Answer::of(0), &data, turn),
            Err(error) => self.refuse(slot, refusal_of(&error, 0), turn),
        }
    }

    /// A request of a store has ended.
    pub(super) fn page_request_ended<T: ServedDrive>(
        &mut self,
        slot: Slot,
        export: usize,
        finished: PageFinished,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let PageFinished { id, outcome, .. } = finished;
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let io = command.io.expect("an I/O command").command;
        let served = &mut turn.served[export];
        let result = match (io, outcome) {
            (IoCommand::Page(PageCommand::Read { .. }), Ok(Some(facts))) => {
                Some(read_result(facts.bytes, facts.version))
            }
            (IoCommand::Page(PageCommand::List { .. }), Ok(_)) => Some(0),
            _ => None,
        };
        if let Some(result) = result.filter(|_| !self.session.is_terminated()) {
            // What is sent may be less than what there was room for.
            self.bytes -= command.held - served.length(id);
            return self.send_read(slot, export, id, Answer::of(result), turn);
        }
        served.release(id);
        self.requests -= 1;
        self.bytes -= command.held;
        match (io, outcome) {
            (_, Err(error)) => self.refuse(slot, error.refusal(), turn),
            (IoCommand::Page(PageCommand::Stat { .. }), Ok(Some(facts))) => {
                let stat = PageStat { version: facts.version.into(), bytes: facts.bytes.into(), reserved: 0.into() };
                self.finish_with(slot, Answer::of(0), stat.as_bytes(), turn)
            }
            _ => self.next_request(slot, turn),
        }
    }
}

//! The end of a request, whatever it was asked of.

use openftl_bytes::device::DeviceFinished;
use openftl_bytes::zones::ZoneFinished;
use openftl_bytes::{Finished, RequestId};

use crate::page_request::PageFinished;
use crate::ticket::Ticket;
use crate::value_request::ValueFinished;

/// What has ended.
#[derive(Clone, Copy)]
pub(crate) enum Ended {
    Request(Finished<Ticket>),
    Command(DeviceFinished<Ticket>),
    Zone(ZoneFinished<Ticket>),
    Page(PageFinished),
    Value(ValueFinished),
}

impl Ended {
    pub fn id(&self) -> RequestId {
        match self {
            Ended::Request(finished) => finished.id,
            Ended::Command(finished) => finished.id,
            Ended::Zone(finished) => finished.id,
            Ended::Page(finished) => finished.id,
            Ended::Value(finished) => finished.id,
        }
    }

    pub fn is_success(&self) -> bool {
        match self {
            Ended::Request(finished) => finished.result.is_ok(),
            Ended::Command(finished) => finished.completion.status == openftl_media::Status::Success,
            Ended::Zone(finished) => finished.result.is_ok(),
            Ended::Page(finished) => finished.outcome.is_ok(),
            Ended::Value(finished) => finished.outcome.is_ok(),
        }
    }

    pub fn ticket(&self) -> Ticket {
        match self {
            Ended::Request(finished) => finished.ticket,
            Ended::Command(finished) => finished.ticket,
            Ended::Zone(finished) => finished.ticket,
            Ended::Page(finished) => finished.ticket,
            Ended::Value(finished) => finished.ticket,
        }
    }
}

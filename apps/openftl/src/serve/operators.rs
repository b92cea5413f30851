//! Who has a turn between those of the server: whoever controls the drives, and the Redis clients of a key-value drive.

use crate::assembly::Drive;
use crate::control::Control;
use crate::failure::Failure;
use openftl_core::Time;
use openftl_server::{Drives, Operator};
use openftl_serving::redis_door::RedisDoor;
use rustix::event::epoll;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// See the module.
pub struct Operators {
    /// Readable when one of them is called.
    epoll: OwnedFd,
    pub control: Control,
    pub redis: Option<RedisDoor>,
}

impl Operators {
    /// Both of them, as far as they are there.
    pub fn new(control: Control, redis: Option<RedisDoor>) -> Result<Operators, Failure> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Failure::failed)?;
        let events = Operator::<Drive>::event(&control).into_iter().chain(redis.as_ref().map(RedisDoor::event));
        for event in events {
            epoll::add(&epoll, event, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(Failure::failed)?;
        }
        Ok(Operators { epoll, control, redis })
    }
}

impl Operator<Drive> for Operators {
    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn next_due(&self) -> Option<Time> {
        let of_redis = self.redis.as_ref().and_then(RedisDoor::next_due);
        Operator::<Drive>::next_due(&self.control).into_iter().chain(of_redis).min()
    }

    fn turn(&mut self, now: Time, called: bool, drives: &mut Drives<'_, '_, Drive>) -> ControlFlow<()> {
        if let Some(redis) = &mut self.redis {
            redis.turn(now, called, drives);
        }
        self.control.turn(now, called, drives)
    }

    fn came_to_standstill(&mut self, export: usize, state: &str) {
        Operator::<Drive>::came_to_standstill(&mut self.control, export, state);
    }
}

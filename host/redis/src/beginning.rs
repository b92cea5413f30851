//! Commands of clients are begun, one after the other, as far as the drive takes them.

use crate::command::Command;
use crate::front::{COMMANDS_MAX, Front, GET_FRAMES, INPUT_MAX, LIST_FRAMES, OUTPUT_MAX, PART_MAX, What, frames_of};
use crate::name::Name;
use crate::peer::{Answer, PeerId};
use crate::resp::{self, Parsed, ProtocolError, reply};
use openftl_core::BLOCK_BYTES;
use openftl_parts::target::Durability;
use openftl_values::{Condition, Value, ValueFtl, ValueRequest, ValueTarget};
use std::collections::VecDeque;

impl Front {
    /// Begins the next command of a client, if there is one and it can be. Returns whether anything was done.
    pub(crate) fn next_command(&mut self, drive: &mut ValueFtl, id: PeerId) -> bool {
        let Some(peer) = self.peers.get_mut(&id) else { return false };
        let has_todo = match peer.answers.back() {
            // A key that is compared first is deleted after that: what comes next is to find it gone.
            Some(Answer::Count { todo, deletes, compares, .. }) => !todo.is_empty() || (*deletes && *compares),
            Some(Answer::Scan { .. }) => true,
            _ => false,
        };
        let is_held =
            peer.is_ending || has_todo || peer.answers.len() >= COMMANDS_MAX || peer.output.len() > OUTPUT_MAX;
        if is_held || peer.at == peer.input.len() {
            return false;
        }
        let input = std::mem::take(&mut peer.input);
        let (at, waiting) = (peer.at, &input[peer.at..]);
        let parsed = resp::parse(waiting, PART_MAX);
        let taken = match &parsed {
            Ok(Parsed::Incomplete) if waiting.len() < INPUT_MAX => 0,
            Ok(Parsed::Incomplete) => self.refuse(id, &ProtocolError::Line),
            Ok(Parsed::Command { parts, bytes }) => {
                let parts: Vec<&[u8]> = parts.iter().map(|part| &waiting[part.clone()]).collect();
                if self.begin(drive, id, &parts) { *bytes } else { 0 }
            }
            Ok(Parsed::Line { parts, bytes }) => {
                let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
                if self.begin(drive, id, &parts) { *bytes } else { 0 }
            }
            Err(error) => self.refuse(id, error),
        };
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.input = input;
            peer.at = at + taken;
            if peer.is_ending || peer.at == peer.input.len() {
                peer.input.clear();
                peer.input.shrink_to(64 << 10);
                peer.at = 0;
            } else if peer.at > (256 << 10) {
                peer.input.drain(..peer.at);
                peer.at = 0;
            }
        }
        taken > 0
    }

    /// The client has sent something else than commands: it is told, and closed. Returns 1, for the bytes that are looked at no more.
    fn refuse(&mut self, id: PeerId, error: &ProtocolError) -> usize {
        if let Some(peer) = self.peers.get_mut(&id) {
            let mut out = Vec::new();
            reply::error(&mut out, &format!("ERR {error}"));
            peer.answers.push_back(Answer::Ready(out));
            peer.is_ending = true;
        }
        1
    }

    /// Begins a command. `false`: not now.
    fn begin(&mut self, drive: &mut ValueFtl, id: PeerId, parts: &[&[u8]]) -> bool {
        if parts.is_empty() {
            return true;
        }
        let command = Command::of(parts);
        let durable_stores = drive.info().durable_stores;
        let Some(peer) = self.peers.get_mut(&id) else { return true };
        let looks_at_all = matches!(command, Command::Scan { .. } | Command::DbSize | Command::Info);
        let is_read = matches!(&command, Command::Set(key, ..) if peer.reading.contains_key(&Name::new(key).key()));
        if is_read || (looks_at_all && !peer.answers.is_empty()) {
            return false;
        }
        let number = peer.first + peer.answers.len() as u64;
        let mut out = Vec::new();
        let answer = match &command {
            Command::Get(_) | Command::Set(..) => Answer::Waiting,
            Command::Del(keys) | Command::Exists(keys) => {
                let todo: VecDeque<Name> = keys.iter().map(|key| Name::new(key)).collect();
                Answer::Count {
                    deletes: matches!(command, Command::Del(_)),
                    compares: todo.iter().any(|name| matches!(name, Name::Digest(..))),
                    todo,
                    under_way: 0,
                    count: 0,
                    error: None,
                }
            }
            Command::Scan { cursor, pattern, .. } => Answer::Scan {
                cursor: *cursor,
                pattern: pattern.map(<[u8]>::to_vec),
                keys: Vec::new(),
                todo: VecDeque::new(),
                under_way: 1,
            },
            Command::DbSize => {
                reply::number(&mut out, drive.info().keys as i64);
                Answer::Ready(out)
            }
            Command::Info => {
                let text = self.facts(drive);
                reply::bulk(&mut out, text.as_bytes());
                Answer::Ready(out)
            }
            Command::Ping(text) => {
                match text {
                    Some(text) => reply::bulk(&mut out, text),
                    None => reply::status(&mut out, "PONG"),
                }
                Answer::Ready(out)
            }
            Command::Echo(text) => {
                reply::bulk(&mut out, text);
                Answer::Ready(out)
            }
            Command::Status(text) => {
                reply::status(&mut out, text);
                Answer::Ready(out)
            }
            Command::Empty => {
                reply::array(&mut out, 0);
                Answer::Ready(out)
            }
            Command::ConfigGet(name) => {
                let setting = match name.to_ascii_lowercase().as_slice() {
                    b"save" => Some(""),
                    b"appendonly" => Some(if durable_stores { "yes" } else { "no" }),
                    _ => None,
                };
                reply::array(&mut out, if setting.is_some() { 2 } else { 0 });
                if let Some(setting) = setting {
                    reply::bulk(&mut out, name);
                    reply::bulk(&mut out, setting.as_bytes());
                }
                Answer::Ready(out)
            }
            Command::Quit => {
                reply::status(&mut out, "OK");
                Answer::Ready(out)
            }
            Command::Refused(reason) => {
                reply::error(&mut out, reason);
                Answer::Ready(out)
            }
        };
        let Some(peer) = self.peers.get_mut(&id) else { return true };
        peer.is_ending = matches!(command, Command::Quit);
        peer.answers.push_back(answer);
        let has_begun = match command {
            Command::Get(key) => {
                let name = Name::new(key);
                let key = name.key();
                *peer.reading.entry(key).or_default() += 1;
                let has_begun = self.retrieve(drive, id, number, What::Get(name), key, GET_FRAMES);
                if let (false, Some(peer)) = (has_begun, self.peers.get_mut(&id)) {
                    peer.has_read(&key);
                }
                has_begun
            }
            Command::Set(key, value, condition) => self.set(drive, id, number, &Name::new(key), value, condition),
            Command::Scan { cursor, count, .. } => self.scan(drive, id, number, cursor, count),
            _ => true,
        };
        match has_begun {
            true => self.commands += 1,
            false => {
                if let Some(peer) = self.peers.get_mut(&id) {
                    peer.answers.pop_back();
                }
            }
        }
        has_begun
    }

    fn set(
        &mut self,
        drive: &mut ValueFtl,
        id: PeerId,
        number: u64,
        name: &Name,
        value: &[u8],
        condition: Condition,
    ) -> bool {
        let before = name.before();
        let pieces = [&before[..], value];
        let (key, value) = (name.key(), Value::Pieces(&pieces));
        let store = ValueRequest::Store { key, value, condition, durability: Durability::Volatile };
        self.ask(drive, id, number, What::Set, Vec::new(), store)
    }

    fn scan(&mut self, drive: &mut ValueFtl, id: PeerId, number: u64, cursor: u64, count: u32) -> bool {
        let from = self.cursors.get(&cursor).copied();
        if cursor > 0 && from.is_none() {
            self.ready(id, number, |out| reply::error(out, "ERR invalid cursor: begin again with 0"));
            return true;
        }
        let Some(frames) = frames_of(drive, LIST_FRAMES) else { return false };
        let given = frames.clone();
        // One more, for the key that comes again.
        let bytes = (4 + (count + 1) * 20).min((LIST_FRAMES * BLOCK_BYTES) as u32);
        let count = count.min((bytes - 4) / 20 - 1);
        self.ask(drive, id, number, What::List { count }, frames, ValueRequest::List { from, bytes, frames: &given })
    }

    /// What `INFO` says.
    fn facts(&self, drive: &ValueFtl) -> String {
        let info = drive.info();
        let lines = [
            "# Server".to_owned(),
            // The first one with SCAN, for clients that ask.
            "redis_version:2.8.0".to_owned(),
            "redis_mode:standalone".to_owned(),
            format!("openftl_version:{}", env!("CARGO_PKG_VERSION")),
            "# Clients".to_owned(),
            format!("connected_clients:{}", self.peers.len()),
            "# Stats".to_owned(),
            format!("total_commands_processed:{}", self.commands),
            "# Drive".to_owned(),
            format!("capacity_bytes:{}", info.capacity_bytes),
            format!("used_bytes:{}", info.used_bytes),
            format!("key_bytes:{}", info.key_bytes),
            format!("value_bytes:{}", info.value_bytes),
            format!("value_max:{}", info.value_max),
            format!("durable_stores:{}", u8::from(info.durable_stores)),
            format!("index_bytes:{}", drive.index_bytes()),
            "# Keyspace".to_owned(),
        ];
        let keyspace =
            if info.keys > 0 { format!("db0:keys={},expires=0,avg_ttl=0\r\n", info.keys) } else { String::new() };
        lines.join("\r\n") + "\r\n" + &keyspace
    }
}

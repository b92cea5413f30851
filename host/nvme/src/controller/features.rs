//! What a host has set (Base, "Feature Values"). Nothing is saved over a reset.

use crate::command::Refusal;
use crate::command::admin::{GetFeature, SetFeature};
use crate::health::TemperatureRange;
use crate::namespace::{ALL_NAMESPACES, Attached, NAMESPACES_MAX, Namespace, NamespaceKind, NamespaceSet};
use crate::wire::feature::{self, capability, id, select, temperature};
use crate::wire::reservation::Notification;
use crate::wire::status::Status;
use openftl_core::Time;

/// The most I/O queues of a controller.
pub const IO_QUEUES_MAX: u16 = 64;

/// WCTEMP, kelvins: where the composite temperature is a warning, and the threshold until a host sets another.
pub const WARNING_KELVINS: u16 = 343;
/// CCTEMP, kelvins.
pub const CRITICAL_KELVINS: u16 = 353;

/// Dword 11 of Error Recovery that counts: DULBE and TLER.
const ERROR_RECOVERY_MASK: u32 = feature::DEALLOCATED_ERROR | 0xffff;
/// Dword 11 of Media Feedback that counts: HECC and VHECC.
const MEDIA_FEEDBACK_MASK: u32 = 0b11;
/// HPW, MPW, LPW and AB.
const ARBITRATION_MASK: u32 = 0xffff_ff07;

/// The features of one controller.
#[derive(Clone, Debug)]
pub struct Features {
    arbitration: u32,
    temperatures: TemperatureRange,
    /// Of each namespace, at its id less one.
    error_recovery: [u32; NAMESPACES_MAX as usize],
    is_write_cache_on: bool,
    io_queues: u16,
    /// DN: the host needs no more atomicity than after a power failure. We keep it all the same.
    write_atomicity: u32,
    events: u32,
    /// Milliseconds, and when they were said.
    timestamp: Option<(u64, Time)>,
    host_behavior: [u8; feature::data_bytes::HOST_BEHAVIOR as usize],
    media_feedback: u32,
    /// Key-value namespaces whose Deletes need their key.
    deletes_need_key: NamespaceSet,
    /// Notifications about reservations that the host does not want, of each namespace at its id less one.
    reservation_masks: [u32; NAMESPACES_MAX as usize],
}

impl Default for Features {
    fn default() -> Features {
        Features {
            arbitration: 0,
            temperatures: TemperatureRange { over: WARNING_KELVINS, under: 0 },
            error_recovery: [0; NAMESPACES_MAX as usize],
            is_write_cache_on: true,
            io_queues: IO_QUEUES_MAX,
            write_atomicity: 0,
            events: 0,
            timestamp: None,
            host_behavior: [0; feature::data_bytes::HOST_BEHAVIOR as usize],
            media_feedback: 0,
            deletes_need_key: NamespaceSet::default(),
            reservation_masks: [0; NAMESPACES_MAX as usize],
        }
    }
}

/// What of the controller features are about, beside themselves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings<'a> {
    pub now: Time,
    pub namespaces: Attached<'a>,
    pub host_id: [u8; 16],
    pub keep_alive_ms: u32,
    pub has_io_queues: bool,
    pub is_discovery: bool,
}

/// What a Set Features command changed that others have to act on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Changed {
    /// Nothing.
    Nothing,
    /// The keep-alive timer, in milliseconds.
    KeepAlive(u32),
    /// Between which temperatures the host wants no warning.
    Temperatures,
    /// DULBE of these namespaces.
    DeallocatedError { namespace: u32, is_error: bool },
}

impl Features {
    /// Asynchronous Event Configuration.
    #[must_use]
    pub fn events(&self) -> u32 {
        self.events
    }

    /// Between which temperatures the host wants no warning.
    #[must_use]
    pub fn temperatures(&self) -> TemperatureRange {
        self.temperatures
    }

    /// Whether every write has to be durable.
    #[inline]
    #[must_use]
    pub fn is_write_through(&self) -> bool {
        !self.is_write_cache_on
    }

    /// Whether a Delete of a key that does not exist is an error on this namespace.
    #[inline]
    #[must_use]
    pub fn delete_needs_key(&self, namespace: u32) -> bool {
        self.deletes_need_key.contains(namespace)
    }

    /// Whether the host does not want to be told of such a thing.
    #[must_use]
    pub fn masks(&self, namespace: u32, notification: Notification) -> bool {
        self.reservation_masks[namespace as usize - 1] & notification.bit() != 0
    }

    /// The value of Timestamp.
    #[must_use]
    pub fn timestamp(&self, now: Time) -> [u8; feature::data_bytes::TIMESTAMP as usize] {
        let (milliseconds, origin) = match self.timestamp {
            Some((said, at)) => (said + now.since(at).0 / 1_000_000, feature::TIMESTAMP_SET_BY_HOST),
            None => (now.0 / 1_000_000, 0),
        };
        let mut value = milliseconds.to_le_bytes();
        [value[6], value[7]] = [origin, 0];
        value
    }

    /// How many I/O queues the host may make.
    #[must_use]
    pub fn io_queues(&self) -> u16 {
        self.io_queues
    }

    /// Sets a feature; `data` are as long as the command says. Returns dword 0 and what changed.
    pub(super) fn set(
        &mut self,
        command: &SetFeature,
        data: &[u8],
        around: Surroundings<'_>,
    ) -> Result<(u64, Changed), Refusal> {
        let SetFeature { feature, namespace, value, .. } = *command;
        check_supported(feature, around.is_discovery)?;
        if command.save {
            return Err(Status::FEATURE_NOT_SAVEABLE.at(43).bit(7));
        }
        if !is_per_namespace(feature) && !matches!(namespace, 0 | ALL_NAMESPACES) {
            return Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC.at(4));
        }
        let invalid = Status::INVALID_FIELD.at(44);
        match feature {
            id::ARBITRATION => self.arbitration = value & ARBITRATION_MASK,
            // The only power state.
            id::POWER_MANAGEMENT if value & 0x1f != 0 => return Err(invalid),
            id::POWER_MANAGEMENT => {}
            id::TEMPERATURE_THRESHOLD => {
                let sensor = value >> 16 & 0xf;
                if !matches!(sensor, 0 | 0xf) {
                    return Err(Status::INVALID_FIELD.at(46));
                }
                match value >> 20 & 0b11 {
                    temperature::OVER => self.temperatures.over = value as u16,
                    temperature::UNDER => self.temperatures.under = value as u16,
                    _ => return Err(Status::INVALID_FIELD.at(46).bit(4)),
                }
                return Ok((0, Changed::Temperatures));
            }
            id::ERROR_RECOVERY => return self.set_error_recovery(namespace, value, around.namespaces),
            id::VALUE_CONFIGURATION => {
                let needs_key = value & feature::DELETE_NEEDS_KEY != 0;
                for named in values_of(around.namespaces, namespace)? {
                    if needs_key { self.deletes_need_key.insert(named) } else { self.deletes_need_key.remove(named) }
                }
            }
            id::RESERVATION_MASK => {
                for named in all_or_one(around.namespaces, namespace)? {
                    self.reservation_masks[named as usize - 1] = value & Notification::BITS;
                }
            }
            // RESCAP says that nothing is kept.
            id::RESERVATION_PERSISTENCE => {
                all_or_one(around.namespaces, namespace)?;
                if value & feature::PERSISTENT_RESERVATIONS != 0 {
                    return Err(invalid);
                }
            }
            id::VOLATILE_WRITE_CACHE => self.is_write_cache_on = value & feature::WRITE_CACHE_ENABLED != 0,
            id::NUMBER_OF_QUEUES => {
                if around.has_io_queues {
                    return Err(Status::COMMAND_SEQUENCE_ERROR.into());
                }
                let (submission, completion) = (value as u16, (value >> 16) as u16);
                if submission == u16::MAX || completion == u16::MAX {
                    return Err(invalid);
                }
                // Over fabrics a queue is a pair of both.
                self.io_queues = submission.max(completion).saturating_add(1).min(IO_QUEUES_MAX);
                return Ok((self.queues_granted(), Changed::Nothing));
            }
            id::WRITE_ATOMICITY => self.write_atomicity = value & 1,
            id::ASYNCHRONOUS_EVENTS => self.events = value,
            id::TIMESTAMP => {
                let milliseconds = data[..6].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
                self.timestamp = Some((milliseconds, around.now));
            }
            id::KEEP_ALIVE => return Ok((0, Changed::KeepAlive(value))),
            id::HOST_BEHAVIOR => self.host_behavior.copy_from_slice(data),
            id::COMMAND_SET_PROFILE if value & 0x1ff != 0 => return Err(Status::COMMAND_SET_REJECTED.at(44)),
            id::COMMAND_SET_PROFILE => {}
            // Said with Connect, once for all.
            id::HOST_ID => return Err(Status::COMMAND_SEQUENCE_ERROR.into()),
            id::MEDIA_FEEDBACK => self.media_feedback = value & MEDIA_FEEDBACK_MASK,
            id::INTERRUPT_COALESCING | id::INTERRUPT_VECTOR => return Err(Status::FEATURE_NOT_CHANGEABLE.at(40)),
            _ => unreachable!("feature {feature:#x} is supported"),
        }
        Ok((0, Changed::Nothing))
    }

    fn set_error_recovery(
        &mut self,
        namespace: u32,
        value: u32,
        namespaces: Attached<'_>,
    ) -> Result<(u64, Changed), Refusal> {
        let is_error = value & feature::DEALLOCATED_ERROR != 0;
        // A block FTL reads zeroes from blocks never written, and cannot do otherwise.
        let can = |namespace: &Namespace| !is_error || matches!(namespace.kind, NamespaceKind::OpenChannel(_));
        let is_possible = match namespace {
            ALL_NAMESPACES => namespaces.iter().all(can),
            id => can(namespaces.get(id)?),
        };
        if !is_possible {
            return Err(Status::INVALID_FIELD.at(46));
        }
        for named in namespaces.iter().filter(|named| namespace == ALL_NAMESPACES || named.id == namespace) {
            self.error_recovery[named.id as usize - 1] = value & ERROR_RECOVERY_MASK;
        }
        Ok((0, Changed::DeallocatedError { namespace, is_error }))
    }

    /// The value of a feature: dword 0, and data that are appended to `out`.
    pub(super) fn get(
        &self,
        command: &GetFeature,
        around: Surroundings<'_>,
        out: &mut Vec<u8>,
    ) -> Result<u64, Refusal> {
        let GetFeature { feature, namespace, value, .. } = *command;
        check_supported(feature, around.is_discovery)?;
        let defaults;
        let features = match command.select {
            select::CURRENT => self,
            // What cannot be saved has its default saved.
            select::DEFAULT | select::SAVED => {
                defaults = Features::default();
                &defaults
            }
            select::CAPABILITIES => return Ok(u64::from(capabilities(feature))),
            _ => return Err(Status::INVALID_FIELD.at(41)),
        };
        Ok(match feature {
            id::ARBITRATION => u64::from(features.arbitration),
            id::TEMPERATURE_THRESHOLD => match (value >> 16 & 0xf, value >> 20 & 0b11) {
                (0, temperature::OVER) => u64::from(features.temperatures.over),
                (0, temperature::UNDER) => u64::from(features.temperatures.under),
                _ => return Err(Status::INVALID_FIELD.at(46)),
            },
            // Of no namespace in particular: what holds of all of them. SPDK's hosts ask so.
            id::ERROR_RECOVERY if namespace == 0 => {
                let values = around.namespaces.iter().map(|one| features.error_recovery[one.id as usize - 1]);
                u64::from(values.reduce(|one, other| one & other).unwrap_or(0))
            }
            id::ERROR_RECOVERY => {
                let namespace = around.namespaces.get(namespace)?;
                u64::from(features.error_recovery[namespace.id as usize - 1])
            }
            id::VALUE_CONFIGURATION => {
                let mut of_values = values_of(around.namespaces, namespace)?.into_iter();
                let needs_key = of_values.all(|named| features.deletes_need_key.contains(named));
                if needs_key { u64::from(feature::DELETE_NEEDS_KEY) } else { 0 }
            }
            // Of one namespace: those of several may differ.
            id::RESERVATION_MASK | id::RESERVATION_PERSISTENCE if namespace == ALL_NAMESPACES => {
                return Err(Status::INVALID_FIELD.at(4));
            }
            id::RESERVATION_MASK => {
                let namespace = around.namespaces.get(namespace)?;
                u64::from(features.reservation_masks[namespace.id as usize - 1])
            }
            id::RESERVATION_PERSISTENCE => around.namespaces.get(namespace).map(|_| 0)?,
            // A transport of messages has no interrupts: none is held back.
            id::INTERRUPT_COALESCING => 0,
            id::INTERRUPT_VECTOR => u64::from(value & 0xffff | feature::COALESCING_DISABLED),
            id::VOLATILE_WRITE_CACHE => u64::from(features.is_write_cache_on),
            id::NUMBER_OF_QUEUES => features.queues_granted(),
            id::WRITE_ATOMICITY => u64::from(features.write_atomicity),
            id::ASYNCHRONOUS_EVENTS => u64::from(features.events),
            id::TIMESTAMP => {
                out.extend_from_slice(&features.timestamp(around.now));
                0
            }
            id::KEEP_ALIVE => u64::from(around.keep_alive_ms),
            id::HOST_BEHAVIOR => {
                out.extend_from_slice(&features.host_behavior);
                0
            }
            // EXHID: over fabrics there are only identifiers of 128 bits.
            id::HOST_ID if value & 1 == 0 => return Err(Status::INVALID_FIELD.at(44)),
            id::HOST_ID => {
                out.extend_from_slice(&around.host_id);
                0
            }
            id::MEDIA_FEEDBACK => u64::from(features.media_feedback),
            id::POWER_MANAGEMENT | id::COMMAND_SET_PROFILE => 0,
            _ => unreachable!("feature {feature:#x} is supported"),
        })
    }

    /// NSQA and NCQA, 0-based.
    fn queues_granted(&self) -> u64 {
        let last = u64::from(self.io_queues - 1);
        last | last << 16
    }
}

/// Whether each namespace has a value of its own of a feature.
fn is_per_namespace(feature: u8) -> bool {
    matches!(feature, id::ERROR_RECOVERY | id::VALUE_CONFIGURATION | id::RESERVATION_MASK | id::RESERVATION_PERSISTENCE)
}

/// The namespaces that a command means: one, or all.
fn all_or_one(namespaces: Attached<'_>, namespace: u32) -> Result<Vec<u32>, Refusal> {
    if namespace == ALL_NAMESPACES {
        return Ok(namespaces.iter().map(|one| one.id).collect());
    }
    Ok(vec![namespaces.get(namespace)?.id])
}

/// The key-value namespaces that a command about their configuration means: one, or all.
fn values_of(namespaces: Attached<'_>, namespace: u32) -> Result<Vec<u32>, Refusal> {
    let is_of_values = |one: &Namespace| matches!(one.kind, NamespaceKind::Values(_));
    if namespace != ALL_NAMESPACES {
        let named = namespaces.get(namespace)?;
        return if is_of_values(named) { Ok(vec![named.id]) } else { Err(Status::INVALID_FIELD.at(4)) };
    }
    let ids: Vec<u32> = namespaces.iter().filter(|one| is_of_values(one)).map(|one| one.id).collect();
    if ids.is_empty() { Err(Status::INVALID_FIELD.at(4)) } else { Ok(ids) }
}

fn check_supported(feature: u8, is_discovery: bool) -> Result<(), Refusal> {
    let is_supported = match feature {
        id::ASYNCHRONOUS_EVENTS | id::KEEP_ALIVE | id::HOST_ID => true,
        id::ARBITRATION
        | id::POWER_MANAGEMENT
        | id::TEMPERATURE_THRESHOLD
        | id::ERROR_RECOVERY
        | id::VOLATILE_WRITE_CACHE
        | id::NUMBER_OF_QUEUES
        | id::INTERRUPT_COALESCING
        | id::INTERRUPT_VECTOR
        | id::WRITE_ATOMICITY
        | id::TIMESTAMP
        | id::HOST_BEHAVIOR
        | id::COMMAND_SET_PROFILE
        | id::VALUE_CONFIGURATION
        | id::RESERVATION_MASK
        | id::RESERVATION_PERSISTENCE
        | id::MEDIA_FEEDBACK => !is_discovery,
        _ => false,
    };
    if is_supported { Ok(()) } else { Err(Status::INVALID_FIELD.at(40)) }
}

/// What can be done with a feature; nothing can be saved.
fn capabilities(feature: u8) -> u32 {
    match feature {
        id::RESERVATION_PERSISTENCE => capability::PER_NAMESPACE,
        feature if is_per_namespace(feature) => capability::CHANGEABLE | capability::PER_NAMESPACE,
        id::HOST_ID | id::INTERRUPT_COALESCING | id::INTERRUPT_VECTOR => 0,
        _ => capability::CHANGEABLE,
    }
}

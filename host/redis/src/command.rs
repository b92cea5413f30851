//! What clients ask for.

use openftl_values::Condition;

/// A command. Bytes are those of the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command<'a> {
    /// The value of a key.
    Get(&'a [u8]),
    /// A key has this value from now on.
    Set(&'a [u8], &'a [u8], Condition),
    /// These keys are there no more.
    Del(Vec<&'a [u8]>),
    /// How many of these keys there are.
    Exists(Vec<&'a [u8]>),
    /// Keys from a place on that are as the pattern says, of so many.
    Scan {
        /// The place.
        cursor: u64,
        /// The pattern.
        pattern: Option<&'a [u8]>,
        /// How many are looked at.
        count: u32,
    },
    /// How many keys there are.
    DbSize,
    /// What the drive is like.
    Info,
    /// An answer.
    Ping(Option<&'a [u8]>),
    /// The same back.
    Echo(&'a [u8]),
    /// Something that is answered with this status, and changes nothing.
    Status(&'static str),
    /// Something that is answered with an empty list.
    Empty,
    /// Settings: there are none, but these two that benchmarks ask for.
    ConfigGet(&'a [u8]),
    /// The client leaves.
    Quit,
    /// This error.
    Refused(String),
}

/// Keys that a scan looks at unless it says how many, and the most.
const SCAN_COUNT: u32 = 10;
const SCAN_COUNT_MAX: u32 = 1000;

/// The longest part of an error that is the client's own.
const SHOWN_MAX: usize = 64;

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_MAX)]).into_owned()
}

fn arity(name: &str) -> Command<'static> {
    Command::Refused(format!("ERR wrong number of arguments for '{name}' command"))
}

fn syntax() -> Command<'static> {
    Command::Refused("ERR syntax error".to_owned())
}

fn is(word: &[u8], other: &str) -> bool {
    word.eq_ignore_ascii_case(other.as_bytes())
}

impl<'a> Command<'a> {
    /// The command with these parts, of which there is one at least.
    #[must_use]
    pub fn of(parts: &[&'a [u8]]) -> Command<'a> {
        let (name, arguments) = (parts[0].to_ascii_lowercase(), &parts[1..]);
        let name = std::str::from_utf8(&name).unwrap_or("");
        match (name, arguments) {
            ("get", [key]) => Command::Get(key),
            ("set", [key, value, options @ ..]) => set(key, value, options),
            ("del" | "unlink", [_, ..]) => Command::Del(arguments.to_vec()),
            ("exists", [_, ..]) => Command::Exists(arguments.to_vec()),
            ("scan", [cursor, options @ ..]) => scan(cursor, options),
            ("dbsize", []) => Command::DbSize,
            ("info", [] | [_]) => Command::Info,
            ("ping", []) => Command::Ping(None),
            ("ping", [text]) => Command::Ping(Some(text)),
            ("echo", [text]) => Command::Echo(text),
            ("select", [index]) if *index == b"0" => Command::Status("OK"),
            ("select", [_]) => Command::Refused("ERR DB index is out of range: there is one, 0".to_owned()),
            ("command", _) => Command::Empty,
            ("config", [get, name]) if is(get, "get") => Command::ConfigGet(name),
            ("config", _) => Command::Refused("ERR CONFIG GET only: nothing can be set here".to_owned()),
            ("client", [word, ..]) if is(word, "setname") || is(word, "setinfo") => Command::Status("OK"),
            ("quit", []) => Command::Quit,
            (
                "get" | "set" | "del" | "unlink" | "exists" | "scan" | "dbsize" | "info" | "ping" | "echo" | "select"
                | "quit",
                _,
            ) => arity(name),
            _ => Command::Refused(format!("ERR unknown command '{}'", shown(parts[0]))),
        }
    }
}

fn set<'a>(key: &'a [u8], value: &'a [u8], options: &[&'a [u8]]) -> Command<'a> {
    let mut condition = Condition::Always;
    for option in options {
        condition = match condition {
            Condition::Always if is(option, "nx") => Condition::IfMissing,
            Condition::Always if is(option, "xx") => Condition::IfExists,
            _ if ["ex", "px", "exat", "pxat", "keepttl"].iter().any(|word| is(option, word)) => {
                return Command::Refused("ERR keys do not expire here: leave the option of SET away".to_owned());
            }
            _ => return syntax(),
        };
    }
    Command::Set(key, value, condition)
}

fn scan<'a>(cursor: &[u8], options: &[&'a [u8]]) -> Command<'a> {
    let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<u64>().ok();
    let Some(cursor) = number(cursor) else { return Command::Refused("ERR invalid cursor".to_owned()) };
    let (mut pattern, mut count) = (None, SCAN_COUNT);
    for option in options.chunks(2) {
        match option {
            [word, text] if is(word, "match") => pattern = Some(*text),
            [word, text] if is(word, "count") => match number(text).filter(|count| *count > 0) {
                Some(asked) => count = asked.min(SCAN_COUNT_MAX.into()) as u32,
                None => return Command::Refused("ERR value is not an integer or out of range".to_owned()),
            },
            [word, text] if is(word, "type") && is(text, "string") => {}
            _ => return syntax(),
        }
    }
    Command::Scan { cursor, pattern, count }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Command<'_> {
        Command::of(&text.split(' ').map(str::as_bytes).collect::<Vec<_>>())
    }

    #[test]
    fn commands_are_known_by_their_names_in_any_case() {
        assert_eq!(of("GeT k"), Command::Get(b"k"));
        assert_eq!(of("set k v"), Command::Set(b"k", b"v", Condition::Always));
        assert_eq!(of("SET k v nx"), Command::Set(b"k", b"v", Condition::IfMissing));
        assert_eq!(of("SET k v XX"), Command::Set(b"k", b"v", Condition::IfExists));
        assert_eq!(of("del a b"), Command::Del(vec![b"a", b"b"]));
        assert_eq!(of("scan 7 count 5 match a*"), Command::Scan { cursor: 7, pattern: Some(b"a*"), count: 5 });
        assert_eq!(of("select 0"), Command::Status("OK"));
        assert_eq!(of("config get save"), Command::ConfigGet(b"save"));
    }

    #[test]
    fn what_is_no_command_is_refused_with_the_reason() {
        let refused = |text| match of(text) {
            Command::Refused(reason) => reason,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(refused("get"), "ERR wrong number of arguments for 'get' command");
        assert_eq!(refused("FLUSHALL"), "ERR unknown command 'FLUSHALL'");
        assert_eq!(refused("set k v nx xx"), "ERR syntax error");
        assert_eq!(refused("set k v ex 10"), "ERR keys do not expire here: leave the option of SET away");
        assert_eq!(refused("scan x"), "ERR invalid cursor");
        assert_eq!(refused("scan 0 count 0"), "ERR value is not an integer or out of range");
        assert_eq!(refused("scan 0 match"), "ERR syntax error");
        assert!(refused("select 1").starts_with("ERR DB index"));
    }
}

//! Where a target listens.

use std::fmt;
use std::str::FromStr;

/// The port that IANA gave to NVMe over fabrics.
const PORT_DEFAULT: u16 = 4420;

/// A machine, by name or number, and a port: `127.0.0.1:4420`, `[::1]:4420`, or a machine alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// Its name, or its number without brackets.
    pub machine: String,
    pub port: u16,
}

/// A text that is none.
#[derive(Clone, Debug, thiserror::Error)]
#[error("`{0}` is no address; write it like 127.0.0.1:4420, [::1]:4420 or a machine's name")]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let error = || AddressError(text.to_owned());
        let (machine, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (machine, rest) = rest.split_once(']').ok_or_else(error)?;
                let port = if rest.is_empty() { None } else { Some(rest.strip_prefix(':').ok_or_else(error)?) };
                (machine, port)
            }
            None => match text.split_once(':') {
                // More than one colon without brackets is a number of IPv6.
                Some((_, rest)) if rest.contains(':') => (text, None),
                Some((machine, port)) => (machine, Some(port)),
                None => (text, None),
            },
        };
        let port = port.map_or(Ok(PORT_DEFAULT), str::parse).map_err(|_| error())?;
        if machine.is_empty() || machine.contains(['/', ' ']) {
            return Err(error());
        }
        Ok(Address { machine: machine.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.machine.contains(':') {
            true => write!(f, "[{}]:{}", self.machine, self.port),
            false => write!(f, "{}:{}", self.machine, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_people_write_it() {
        for (text, machine, port) in [
            ("127.0.0.1:4421", "127.0.0.1", 4421),
            ("127.0.0.1", "127.0.0.1", 4420),
            ("drive.example:1", "drive.example", 1),
            ("[::1]:8009", "::1", 8009),
            ("[::1]", "::1", 4420),
            ("::1", "::1", 4420),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.machine.as_str(), address.port), (machine, port), "{text}");
            assert_eq!(address.to_string().parse::<Address>().unwrap(), address);
        }
        for text in ["", ":4420", "127.0.0.1:", "127.0.0.1:port", "127.0.0.1:70000", "[::1", "[::1]4420", "unix:/a"] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("127.0.0.1:4420"), "{error}");
        }
    }
}

//! A file of DH-HMAC-CHAP secrets, a host's or a server's: what is accepted is written the same way.

use openftl_nvme_auth::secret::read_key_file;
use openftl_nvme_auth::{Secret, Secrets};

pub fn run(data: &[u8]) {
    match read_key_file(data) {
        Ok(secrets) => {
            let lines: Vec<&str> = std::str::from_utf8(data)
                .expect("a key file is text")
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
                .collect();
            assert_eq!(secrets.iter().map(Secret::to_text).map(|text| text.to_string()).collect::<Vec<_>>(), lines);
        }
        Err(error) => assert!(!error.to_string().is_empty(), "an error says something"),
    }
    if let Ok(secrets) = Secrets::read(data) {
        let text = std::str::from_utf8(data).expect("a file of secrets is text");
        for host in secrets.hosts() {
            let secret = secrets.of(host).expect("every host has one").to_text();
            let is_written = |line: &str| line.split_whitespace().eq([host, secret.as_str()]);
            assert!(text.lines().any(is_written), "{host} has another secret than the file says");
        }
    }
}

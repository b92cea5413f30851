//! A file of DH-HMAC-CHAP secrets: what is accepted is written the same way.

use openftl_nvme_auth::Secret;
use openftl_nvme_auth::secret::read_key_file;

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
}

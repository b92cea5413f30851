//! A file of secrets, a host's or a server's, of DH-HMAC-CHAP or of TLS: what is accepted is written the same way.

use openftl_nvme_auth::{KeyFileError, Secret, Secrets, TlsKey, TlsKeys, read_key_file};

pub fn run(data: &[u8]) {
    of_a_host(data, read_key_file::<Secret>(data), |secret| secret.to_text().to_string());
    of_a_host(data, read_key_file::<TlsKey>(data), |key| key.to_text().to_string());
    if let Ok(secrets) = Secrets::read(data) {
        let text = |host: &str| secrets.of(host).expect("every host has one").to_text().to_string();
        of_a_server(data, secrets.hosts().map(|host| (host, text(host))));
    }
    if let Ok(keys) = TlsKeys::read(data) {
        let text = |host: &str| keys.of(host).expect("every host has one").to_text().to_string();
        of_a_server(data, keys.hosts().map(|host| (host, text(host))));
    }
}

fn of_a_host<K>(data: &[u8], read: Result<Vec<K>, KeyFileError>, text: impl Fn(&K) -> String) {
    match read {
        Ok(secrets) => {
            let lines: Vec<&str> = std::str::from_utf8(data)
                .expect("a key file is text")
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
                .collect();
            assert_eq!(secrets.iter().map(text).collect::<Vec<_>>(), lines);
        }
        Err(error) => assert!(!error.to_string().is_empty(), "an error says something"),
    }
}

fn of_a_server<'a>(data: &[u8], hosts: impl Iterator<Item = (&'a str, String)>) {
    let text = std::str::from_utf8(data).expect("a file of secrets is text");
    for (host, secret) in hosts {
        let is_written = |line: &str| line.split_whitespace().eq([host, secret.as_str()]);
        assert!(text.lines().any(is_written), "{host} has another secret than the file says");
    }
}

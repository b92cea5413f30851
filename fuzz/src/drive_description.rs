//! A drive as TOML. An error for people is one of few lines.

use openftl_drive::description::DriveDescription;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match DriveDescription::parse(text) {
        Ok(file) => {
            // A size or share that was understood is understood again as it is printed, but for digits left out.
            if let Some(share) = file.media.over_provisioning {
                assert_eq!(share.to_string().parse(), Ok(share));
            }
            if let Some(capacity) = file.media.capacity {
                let again = capacity.to_string().parse::<openftl_core::units::ByteSize>().expect("a size");
                assert!(capacity.0.abs_diff(again.0) <= capacity.0 / 100, "{capacity} is {again} when read again");
            }
        }
        Err(error) => assert!(!error.is_empty(), "an error says something"),
    }
}

//! The bytes beside each block: sixteen of them first, then the beginning of the block.

use openftl_core::{BLOCK_BYTES, Frame, FrameForm, Frames, OOB_BYTES_MIN};
use openftl_parts::flash::oob::Oob;

pub fn run(data: &[u8]) {
    let Some((oob, payload)) = data.split_at_checked(OOB_BYTES_MIN) else { return };
    let payload = &payload[..payload.len().min(BLOCK_BYTES)];
    let mut frames = Frames::new(1, 0, OOB_BYTES_MIN);
    let frame = frames.acquire(FrameForm::Bytes).expect("a new pool");
    frames.bytes_mut(frame)[..payload.len()].copy_from_slice(payload);
    frames.oob_mut(frame).copy_from_slice(oob);
    if Oob::verify(&frames, frame).is_ok() {
        reseal(&mut frames, frame);
    }
    if let Ok(known) = Oob::peek(&frames, frame) {
        known.seal(&mut frames, frame);
        assert_eq!(Oob::verify(&frames, frame), Ok(known), "what was sealed verifies");
        reseal(&mut frames, frame);
        frames.bytes_mut(frame)[BLOCK_BYTES - 1] ^= 1;
        assert!(Oob::verify(&frames, frame).is_err(), "another payload");
    }
}

/// What verifies is what would be written.
fn reseal(frames: &mut Frames, frame: Frame) {
    let before = frames.oob(frame).to_vec();
    Oob::verify(frames, frame).expect("it verified").seal(frames, frame);
    assert_eq!(frames.oob(frame), before);
}

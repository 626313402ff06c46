//! Encodings of one large task, shared by its readers and counted once against the byte budget.

use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;

use crate::model::Result;
use crate::rt::{Reservation, lock};

/// Size above which the encodings of a task count against the byte budget, and are not copied for each reader.
const LARGE_TASK_BYTES: usize = 64 << 10;

/// Whether a task of this size is large.
pub(super) fn is_large(bytes: usize) -> bool {
    bytes > LARGE_TASK_BYTES
}

/// Encodings by format number.
#[derive(Debug, Default)]
pub(super) struct LargeEncodings(Mutex<Vec<LargeEncoding>>);

#[derive(Debug)]
struct LargeEncoding {
    format: u8,
    bytes: Bytes,
    /// Shared by the readers. Dead if there are none: then the task cache counts the bytes, or they are removed.
    reservation: Weak<Reservation>,
}

/// Encoding for one reader.
pub(super) struct EncodingRead {
    pub(super) bytes: Bytes,
    pub(super) reservation: Arc<Reservation>,
    /// Whether this read has made the encoding.
    pub(super) is_new: bool,
}

impl LargeEncodings {
    /// Whether an encoding has readers.
    pub(super) fn has_readers(&self) -> bool {
        let encodings = lock(&self.0);
        let mut reservations = encodings.iter().map(|encoding| &encoding.reservation);
        reservations.any(|reservation| reservation.strong_count() > 0)
    }

    /// Returns the reservation that the readers of a format share; `None` if it has no reader.
    pub(super) fn shared_reservation(&self, format: u8) -> Option<Arc<Reservation>> {
        let encodings = lock(&self.0);
        let mut of_format = encodings
            .iter()
            .filter(|encoding| encoding.format == format);
        of_format.find_map(|encoding| encoding.reservation.upgrade())
    }

    /// Returns the number of encodings.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    /// Removes the encodings without readers. They have no reservation.
    ///
    /// Does not wait for a reader that encodes: it removes them when it is done.
    pub(super) fn remove_unread(&self) {
        if let Ok(mut encodings) = self.0.try_lock() {
            encodings.retain(|encoding| encoding.reservation.strong_count() > 0);
        }
    }

    /// Returns the encoding of a format. Encodes under the lock: one reader encodes, the others wait for it.
    ///
    /// # Errors
    /// Those of `reserve`, which is called if the encoding has no other reader.
    pub(super) fn read(
        &self,
        format: u8,
        reserve: impl FnOnce() -> Result<Reservation>,
        encode: impl FnOnce() -> Vec<u8>,
    ) -> Result<EncodingRead> {
        let mut encodings = lock(&self.0);
        let found = encodings
            .iter_mut()
            .find(|encoding| encoding.format == format);
        if let Some(encoding) = found {
            let reservation = match encoding.reservation.upgrade() {
                Some(reservation) => reservation,
                None => Arc::new(reserve()?),
            };
            encoding.reservation = Arc::downgrade(&reservation);
            return Ok(EncodingRead {
                bytes: encoding.bytes.clone(),
                reservation,
                is_new: false,
            });
        }
        let reservation = Arc::new(reserve()?);
        // Shrunk to its length, because it may stay in the cache.
        let bytes = Bytes::from(encode().into_boxed_slice());
        encodings.push(LargeEncoding {
            format,
            bytes: bytes.clone(),
            reservation: Arc::downgrade(&reservation),
        });
        Ok(EncodingRead {
            bytes,
            reservation,
            is_new: true,
        })
    }
}

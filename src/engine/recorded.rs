//! An entry that is in the log, with room for the forms it goes out in.

use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;

use crate::model::Entry;

/// An entry of a log, with those that were recorded at the same time. Everybody who follows the log shares it, and what it
/// looks like on the wire.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    sheet: Sheet,
    at: usize,
}

/// Entries that were recorded at the same time: one allocation for all of them.
pub(super) type Sheet = Arc<[Written]>;

#[derive(Debug)]
pub(super) struct Written {
    entry: Entry,
    /// Few are asked for, most often one.
    forms: Mutex<Vec<(u8, Arc<OnceLock<Bytes>>)>>,
}

impl Recorded {
    /// Makes a sheet of entries.
    pub(super) fn sheet(entries: impl IntoIterator<Item = Entry>) -> Sheet {
        entries.into_iter().map(|entry| Written { entry, forms: Mutex::default() }).collect()
    }

    /// The entries of a sheet, from one of them on.
    pub(super) fn all(sheet: &Sheet, from: usize) -> impl Iterator<Item = Self> {
        (from..sheet.len()).map(|at| Self { sheet: sheet.clone(), at })
    }

    /// The entry in a wire form: the first who asks writes it, the others share the bytes. What a form is, is
    /// nothing that we need to know.
    pub(crate) fn form(&self, form: u8, write: impl FnOnce(&Entry) -> Bytes) -> Bytes {
        let written = &self.sheet[self.at];
        // Written outside the lock: whoever wants another form need not wait for this one.
        written.place(form).get_or_init(|| write(&written.entry)).clone()
    }
}

impl Written {
    fn place(&self, form: u8) -> Arc<OnceLock<Bytes>> {
        // Places are added whole, so a panic elsewhere spoils nothing.
        let mut forms = self.forms.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, place)) = forms.iter().find(|(known, _)| *known == form) {
            return place.clone();
        }
        let place = Arc::<OnceLock<Bytes>>::default();
        forms.push((form, place.clone()));
        place
    }
}

impl Deref for Recorded {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.sheet[self.at].entry
    }
}

impl Deref for Written {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Event, Seq, Timestamp};

    fn recorded() -> Recorded {
        let entry = Entry { seq: Seq(1), time: Timestamp::default(), event: Event::TurnStarted };
        Recorded::all(&Recorded::sheet([entry]), 0).next().unwrap()
    }

    #[test]
    fn a_form_is_written_once() {
        let recorded = recorded();
        let first = recorded.form(1, |_| Bytes::from("first"));
        assert_eq!(recorded.form(1, |_| unreachable!("it is there")), first);
        assert_eq!(recorded.form(2, |entry| entry.seq.0.to_string().into()), "1");
    }

    #[test]
    fn a_form_that_takes_long_to_write_holds_up_no_other() {
        let recorded = recorded();
        let slow = recorded.form(1, |_| recorded.form(2, |_| Bytes::from("quick")));
        assert_eq!(slow, "quick");
    }
}

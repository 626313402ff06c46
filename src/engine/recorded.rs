//! An entry that is in the log, with room for the forms it goes out in.

use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

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
    /// The forms that were asked for; `None` where one reader has the entry, who needs no copy of what is written.
    forms: Option<Forms>,
}

/// Most often one form is asked for, and it needs no allocation to find it.
#[derive(Debug, Default)]
struct Forms {
    first: OnceLock<u8>,
    bytes: Bytes,
    /// Apart: every entry of a live log has room for its forms, and few are asked for in a second one.
    others: OnceLock<Box<Places<Box<[u8]>>>>,
}

/// What a form looks like, once somebody has written it.
type Bytes = OnceLock<Box<[u8]>>;

/// Forms by their numbers, each with room for what it looks like. Places are filled outside the lock: whoever wants another
/// form need not wait for this one.
#[derive(Debug)]
pub(super) struct Places<T>(Mutex<Vec<(u8, Arc<OnceLock<T>>)>>);

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Places<T> {
    pub(super) fn place(&self, form: u8) -> Arc<OnceLock<T>> {
        // Places are added whole, so a panic elsewhere spoils nothing.
        let mut forms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, place)) = forms.iter().find(|(known, _)| *known == form) {
            return place.clone();
        }
        let place = Arc::<OnceLock<T>>::default();
        forms.push((form, place.clone()));
        place
    }
}

impl Recorded {
    /// Makes a sheet of entries.
    pub(super) fn sheet(entries: impl IntoIterator<Item = Entry>) -> Sheet {
        entries
            .into_iter()
            .map(|entry| Written {
                entry,
                forms: Some(Forms::default()),
            })
            .collect()
    }

    /// Entries that one reader has.
    pub(super) fn own(entries: impl IntoIterator<Item = Entry>) -> Vec<Self> {
        let sheet: Sheet = entries
            .into_iter()
            .map(|entry| Written { entry, forms: None })
            .collect();
        Self::all(&sheet, 0).collect()
    }

    /// The entries of a sheet, from one of them on.
    pub(super) fn all(sheet: &Sheet, from: usize) -> impl Iterator<Item = Self> {
        (from..sheet.len()).map(|at| Self {
            sheet: sheet.clone(),
            at,
        })
    }

    /// Writes the entry in a wire form: the first who asks does it, the others share the bytes. What a form is, is
    /// nothing that we need to know.
    pub(crate) fn form(
        &self,
        form: u8,
        out: &mut Vec<u8>,
        write: impl FnOnce(&Entry, &mut Vec<u8>),
    ) {
        let Written { entry, forms } = &self.sheet[self.at];
        let Some(forms) = forms else {
            return write(entry, out);
        };
        if *forms.first.get_or_init(|| form) == form {
            return shared(&forms.bytes, out, |out| write(entry, out));
        }
        shared(
            &forms.others.get_or_init(Box::default).place(form),
            out,
            |out| write(entry, out),
        );
    }
}

/// Whoever is first writes where it goes, and leaves a copy to the others.
fn shared(bytes: &Bytes, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let begun = out.len();
    let bytes = bytes.get_or_init(|| {
        write(out);
        Box::from(&out[begun..])
    });
    if out.len() == begun {
        out.extend_from_slice(bytes);
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
        let entry = Entry {
            seq: Seq(1),
            time: Timestamp::default(),
            event: Event::TurnStarted,
        };
        Recorded::all(&Recorded::sheet([entry]), 0).next().unwrap()
    }

    fn form(recorded: &Recorded, form: u8, bytes: &str) -> String {
        let mut out = b"> ".to_vec();
        recorded.form(form, &mut out, |_, out| {
            out.extend_from_slice(bytes.as_bytes())
        });
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_form_is_written_once() {
        let recorded = recorded();
        for (number, bytes) in [
            (1, "first"),
            (2, "second"),
            (3, "third"),
            (2, "again"),
            (1, "again"),
        ] {
            let expected = ["", "> first", "> second", "> third"][usize::from(number)];
            assert_eq!(form(&recorded, number, bytes), expected);
        }
    }

    #[test]
    fn what_one_reader_has_is_written_where_it_goes() {
        let entry = Entry {
            seq: Seq(1),
            time: Timestamp::default(),
            event: Event::TurnStarted,
        };
        let own = Recorded::own([entry]).remove(0);
        assert_eq!(
            (form(&own, 1, "a"), form(&own, 1, "b")),
            ("> a".to_owned(), "> b".to_owned())
        );
    }

    #[test]
    fn a_form_that_takes_long_to_write_holds_up_no_other() {
        let recorded = recorded();
        let mut out = Vec::new();
        recorded.form(1, &mut out, |_, out| {
            out.extend_from_slice(form(&recorded, 2, "quick").as_bytes())
        });
        assert_eq!(out, b"> quick");
    }
}

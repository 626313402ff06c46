//! `attache config show`: what is in force, and where it comes from. It never writes.

use serde::Serialize;

use crate::failure::Outcome;
use crate::output::{Output, Page};
use crate::settings::{Setting, Settings};

#[derive(Serialize)]
struct Shown {
    settings: Vec<One>,
}

#[derive(Serialize)]
struct One {
    name: &'static str,
    value: Option<String>,
    source: String,
    origin: Option<String>,
}

pub(crate) fn show(settings: &Settings, out: &mut Output) -> Outcome {
    let shown: Vec<_> = settings.all.iter().map(one).collect();
    if out.is_json() {
        return out.json(&Shown { settings: shown });
    }
    let mut page = Page::new(false);
    for one in shown {
        let from = one
            .origin
            .map(|origin| format!(", {origin}"))
            .unwrap_or_default();
        page.field(
            one.name,
            &format!(
                "{} ({}{from})",
                one.value.as_deref().unwrap_or("not set"),
                one.source
            ),
        );
    }
    out.page(&page)
}

fn one(setting: &Setting) -> One {
    One {
        name: setting.name,
        value: setting.shown(),
        source: setting.source.to_string(),
        origin: setting.origin(),
    }
}

//! `attache config show`: what is in force, and where it comes from. It never writes.

use serde::Serialize;

use crate::error::CliResult;
use crate::output::{Output, TextPage};
use crate::settings::{Setting, Settings};

#[derive(Serialize)]
struct ConfigReport {
    settings: Vec<SettingReport>,
}

#[derive(Serialize)]
struct SettingReport {
    name: &'static str,
    value: Option<String>,
    source: String,
    origin: Option<String>,
}

pub(crate) fn show(settings: &Settings, out: &mut Output) -> CliResult {
    let shown: Vec<_> = settings.all.iter().map(one).collect();
    if out.is_json() {
        return out.print_json(&ConfigReport { settings: shown });
    }
    let mut page = TextPage::new(false);
    for one in shown {
        let from = one
            .origin
            .map(|origin| format!(", {origin}"))
            .unwrap_or_default();
        page.add_field(
            one.name,
            &format!(
                "{} ({}{from})",
                one.value.as_deref().unwrap_or("not set"),
                one.source
            ),
        );
    }
    out.print_page(&page)
}

fn one(setting: &Setting) -> SettingReport {
    SettingReport {
        name: setting.name,
        value: setting.display_value(),
        source: setting.source.to_string(),
        origin: setting.origin(),
    }
}

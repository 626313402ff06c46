//! `attache config show`: the effective settings with their sources. Never writes.

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
    let rows: Vec<_> = settings.resolved.listed().map(report).collect();
    if out.is_json() {
        return out.print_json(&ConfigReport { settings: rows });
    }
    let mut page = TextPage::new(false);
    for setting in rows {
        let origin = setting
            .origin
            .map(|origin| format!(", {origin}"))
            .unwrap_or_default();
        page.add_field(
            setting.name,
            &format!(
                "{} ({}{origin})",
                setting.value.as_deref().unwrap_or("not set"),
                setting.source
            ),
        );
    }
    out.print_page(&page)
}

fn report(setting: &Setting) -> SettingReport {
    SettingReport {
        name: setting.flag.name,
        value: setting.display_value(),
        source: setting.source.to_string(),
        origin: setting.origin(),
    }
}

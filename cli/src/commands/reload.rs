//! `attache reload`: makes a running server read its configuration, keys and certificates again.

use anyhow::{Context, bail};
use serde_json::json;

use crate::admin;
use crate::args::ReloadArgs;
use crate::data_dir;
use crate::output::{Output, TextPage};

pub(crate) fn run(args: &ReloadArgs, out: &mut Output) -> anyhow::Result<()> {
    let named = args.folder.data_dir.as_deref();
    let folder = data_dir::locate(named, super::serve::DATA_DIR_NAME)
        .context("there is no data directory; give one: --data-dir <DIR>")?;
    let Some(answer) = admin::request(&folder, "POST", "/reload")? else {
        bail!(
            "no server is running with the data directory {}; give its directory: --data-dir <DIR>",
            folder.display()
        );
    };
    // `reloaded`, or `reloaded; these need a restart: …`.
    let remark = answer.trim().split_once("; ").map(|(_, remark)| remark);
    if out.is_json() {
        out.print_json(&json!({"schema": "attache.reload/1", "remark": remark}))?;
        return Ok(());
    }
    let mut page = TextPage::new(false);
    page.add_field("Reloaded", &folder.display().to_string());
    if let Some(remark) = remark {
        page.add_field("Remark", remark);
    }
    out.print_page(&page)?;
    Ok(())
}

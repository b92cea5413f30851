//! A real browser that looks at a page: Chromium without a window.
//!
//! What is to be known of a page is asked by a script in a copy of it, inside a frame of the width that is wanted: a window of
//! a browser cannot be made as narrow as a phone.

use crate::program::{Ended, run};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// What the reader likes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    Light,
    Dark,
}

/// A browser with a folder of its own.
pub struct Browser {
    folder: TempDir,
}

/// What is found on a page.
#[derive(Clone, PartialEq, Debug, serde::Deserialize)]
pub struct Found {
    /// Of the frame, in CSS pixels.
    pub width: u32,
    /// CSS pixels by which the page is wider than that.
    pub overflow: u32,
    /// Errors of scripts, and what the page's own policy forbids.
    pub errors: u32,
    /// Whatever the page asked for besides itself.
    pub requests: u32,
    /// Pictures that are not decoration.
    pub pictures: u32,
    /// Of these, pictures that have no name for those who do not see them.
    pub pictures_without_words: u32,
    /// The least ratio of contrast between a text and the page behind it.
    pub least_contrast: f64,
}

/// Runs in the frame, and tells the page around it.
const SCRIPT: &str = r#"
let errors = 0;
addEventListener("error", () => errors += 1);
addEventListener("securitypolicyviolation", () => errors += 1);
addEventListener("load", () => {
  const light = colour => {
    const [r, g, b] = colour.match(/[\d.]+/g).slice(0, 3).map(part => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = light(getComputedStyle(document.body).backgroundColor);
  const contrast = element => {
    const style = getComputedStyle(element);
    const front = light(element instanceof SVGElement ? style.fill : style.color);
    return (Math.max(front, behind) + 0.05) / (Math.min(front, behind) + 0.05);
  };
  const texts = document.querySelectorAll("h1, h2, p, li, th, td, .unit, figcaption, footer, text");
  const pictures = [...document.querySelectorAll("svg:not([aria-hidden])")];
  const root = document.documentElement;
  parent.document.getElementById("found").textContent = JSON.stringify({
    width: innerWidth,
    overflow: Math.max(0, root.scrollWidth - innerWidth),
    errors,
    requests: performance.getEntriesByType("resource").length,
    pictures: pictures.length,
    pictures_without_words: pictures.filter(picture => !picture.getAttribute("aria-label")).length,
    least_contrast: Math.min(...[...texts].map(contrast)),
  });
});
"#;

impl Browser {
    pub fn new() -> Browser {
        Browser { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    /// Looks at `page` in a frame of `width` CSS pixels.
    pub fn probe(&self, page: &Path, look: Look, width: u32) -> Found {
        let ended = self.show(&self.framed(page, width, true), look, width, &["--dump-dom"]);
        let found = ended.stdout.split_once("id=\"found\">").and_then(|(_, rest)| rest.split_once("</pre>"));
        let (found, _) = found.unwrap_or_else(|| panic!("the script has not told: {ended}"));
        serde_json::from_str(found).unwrap_or_else(|error| panic!("{error}: {found}\n{ended}"))
    }

    /// A picture of `page`, as a PNG. OPENFTL_SCREENSHOTS names a folder that they are kept in, for people to look at.
    pub fn screenshot(&self, page: &Path, look: Look, width: u32) -> Vec<u8> {
        let kept = std::env::var_os("OPENFTL_SCREENSHOTS").map(PathBuf::from);
        let folder = kept.unwrap_or_else(|| self.folder.path().to_owned());
        let file = folder.join(format!("page-{look:?}-{width}.png").to_lowercase());
        let flag = format!("--screenshot={}", file.display());
        let ended = self.show(&self.framed(page, width, false), look, width, &[&flag]);
        std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}: {ended}", file.display()))
    }

    /// A page around `page` that gives it a width, and perhaps a script.
    fn framed(&self, page: &Path, width: u32, with_script: bool) -> PathBuf {
        let mut text = std::fs::read_to_string(page).expect("the page can be read");
        if with_script {
            const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";
            assert_eq!(text.matches(POLICY).count(), 1, "the page forbids all that it does not need");
            text = text.replace(POLICY, &format!("{POLICY}; script-src 'unsafe-inline'"));
            text = text.replacen("<style>", &format!("<script>{SCRIPT}</script><style>"), 1);
        }
        let text = text.replace('&', "&amp;").replace('"', "&quot;");
        let around = format!(
            "<!doctype html><meta charset=\"utf-8\"><style>body{{margin:0}}iframe{{border:0;display:block}}</style>\
             <iframe width=\"{width}\" height=\"{HEIGHT}\" srcdoc=\"{text}\"></iframe><pre id=\"found\"></pre>"
        );
        let file = self.folder.path().join("around.html");
        std::fs::write(&file, around).expect("the temporary folder can be written");
        file
    }

    fn show(&self, file: &Path, look: Look, width: u32, flags: &[&str]) -> Ended {
        let size = format!("--window-size={},{HEIGHT}", width.max(500));
        let profile = format!("--user-data-dir={}", self.folder.path().join("profile").display());
        let scheme = match look {
            Look::Dark => "--blink-settings=preferredColorScheme=0",
            Look::Light => "--blink-settings=preferredColorScheme=1",
        };
        let address = format!("file://{}", file.display());
        let fixed =
            ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking"];
        run("chromium", [&fixed[..], &[&size, &profile, scheme], flags, &[&address]].concat()).succeeded()
    }
}

/// CSS pixels, enough for all of a page.
const HEIGHT: u32 = 4200;

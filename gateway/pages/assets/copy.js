// Shows the copy buttons and makes them work. The pages need no script.
"use strict";
const said = document.getElementById("said");
for (const button of document.querySelectorAll("button.copy")) {
  const source = document.getElementById(button.dataset.copy);
  if (!source) continue;
  const label = button.firstChild;
  const before = label.nodeValue;
  let timer;
  button.hidden = false;
  button.addEventListener("click", async () => {
    const ok = await copy(source);
    label.nodeValue = ok ? "Copied" : "Press Ctrl+C";
    button.classList.toggle("done", ok);
    said.textContent = ok ? "Copied" : "Selected. Press Ctrl+C to copy.";
    clearTimeout(timer);
    timer = setTimeout(() => {
      label.nodeValue = before;
      button.classList.remove("done");
      said.textContent = "";
    }, 2000);
  });
}

// copy falls back to a selection where the clipboard is closed to the page, as
// it is on plain http.
async function copy(source) {
  try {
    await navigator.clipboard.writeText(source.textContent);
    return true;
  } catch {
    const selection = getSelection();
    selection.removeAllRanges();
    const range = document.createRange();
    range.selectNodeContents(source);
    selection.addRange(range);
    return document.execCommand("copy");
  }
}

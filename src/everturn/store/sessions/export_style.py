"""The style of an exported session: on a light or a dark screen, and on paper."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--paper:#fdfcfb;--ink:#26241f;--ink-2:#56534d;--ink-3:#716e68;--line:#dedbd6;
--said:#f0eeeb;--code:#f6f4f1;--link:#1a6179;--bad:#a3261c}
@media (prefers-color-scheme:dark){:root{--paper:#171614;--ink:#e8e5e0;--ink-2:#b3b0aa;--ink-3:#95928c;
--line:#393733;--said:#282623;--code:#1f1d1b;--link:#7fc3da;--bad:#f0897c}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:15.5px/1.65 Inter,ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
main{max-width:44rem;margin:0 auto;padding:2rem 1.25rem 4rem;overflow-wrap:anywhere}
h1{font-size:1.5rem;line-height:1.3;margin:0}
h1,.plain,p,li,th,td,blockquote,summary,h2,h3,h4,h5,h6{unicode-bidi:plaintext}
code,summary b{unicode-bidi:isolate}
.when,.note,.to,h2 span{color:var(--ink-3);font-size:.8rem;font-weight:400}
.when,.note{margin:.3rem 0}
.note>sup+p{display:inline;margin-inline-start:.3em}
.asked p{margin:.3rem 0}
.answer{display:flex;flex-direction:column;align-items:flex-end;margin:.6rem 0}
.sources{font-size:.85rem;color:var(--ink-3);overflow-wrap:anywhere}
.sources ol{margin:.2rem 0;padding-inline-start:1.4rem}
article{margin:1.9rem 0}
article>h2{font-size:.8rem;font-weight:600;color:var(--ink-2);margin:0 0 .45rem}
h2 span{margin-inline-start:.4rem}
.user{display:flex;flex-direction:column;align-items:flex-end}
.say{max-width:86%;background:var(--said);border-radius:16px 16px 5px 16px;padding:.55rem .95rem}
.plain{white-space:pre-wrap}
.cut{border-inline-start:2px dashed var(--line);padding-inline-start:.9rem;color:var(--ink-3)}
.prose{margin:.75rem 0}
.prose>*{margin:.75rem 0}
.prose>:first-child{margin-top:0}
.prose h1{font-size:1.3rem;margin-top:1.4rem}
.prose h2{font-size:1.12rem;margin-top:1.3rem}
.prose :is(h3,h4,h5,h6){font-size:1rem;margin-top:1.2rem}
.prose :is(ul,ol){padding-inline-start:1.5rem}
.prose li>:is(p,ul,ol){margin:.25rem 0}
blockquote{margin-inline:0;padding-inline-start:.9rem;border-inline-start:2px solid var(--line);
color:var(--ink-2)}
hr{border:0;border-top:1px solid var(--line)}
a{color:var(--link);text-underline-offset:3px}
code,pre{font-family:"JetBrains Mono",ui-monospace,"SF Mono","Cascadia Code",Menlo,Consolas,monospace}
code{font-size:.87em;background:var(--said);border-radius:4px;padding:.1em .3em}
code:empty{display:none}
pre code{font-size:.8rem;line-height:1.6;background:none;padding:0}
.code{margin:.75rem 0;background:var(--code);border:1px solid var(--line);border-radius:9px}
.code figcaption{color:var(--ink-3);font-size:.75rem;padding:.45rem .9rem 0}
.code pre{margin:0;padding:.6rem .9rem;overflow-x:auto;overflow-wrap:normal}
.table{overflow-x:auto;border:1px solid var(--line);border-radius:9px}
table{border-collapse:collapse;width:100%;font-size:.87rem;font-variant-numeric:tabular-nums}
th,td{text-align:start;vertical-align:top;padding:.4rem .85rem;border-bottom:1px solid var(--line);
overflow-wrap:normal}
tbody tr:last-child td{border-bottom:0}
th{color:var(--ink-2);font-weight:600}
.right{text-align:right}.center{text-align:center}
.picture{color:var(--ink-2)}
details{margin:.35rem 0;color:var(--ink-2)}
summary{font-size:.85rem;cursor:default}
summary b{font-weight:500}
summary i{color:var(--ink-3);font-style:normal;margin-inline-start:.4rem}
summary .bad{color:var(--bad)}
details>.prose{border-inline-start:2px solid var(--line);padding-inline-start:.8rem;font-size:.85rem}
details .code{margin:.45rem 0}
details .code pre{white-space:pre-wrap;overflow-wrap:anywhere}
@page{margin:16mm 15mm}
@media print{
:root{color-scheme:light;--paper:#fff;--ink:#000;--ink-2:#333;--ink-3:#555;--line:#ccc;--said:#f1f1f1;
--code:#fafafa;--link:#0b4a60;--bad:#8c1d14}
body{font-size:10.5pt}
main{max-width:none;padding:0}
details::details-content{display:block;content-visibility:visible;block-size:auto}
summary{list-style:none;break-after:avoid}
.code pre{white-space:pre-wrap;overflow:visible;overflow-wrap:anywhere}
.table{overflow:visible}
th{white-space:normal}
thead{display:table-header-group}
tr,.code,.table,.say,blockquote{break-inside:avoid}
h1,h2,h3,h4,h5,h6,figcaption{break-after:avoid}
p,li{orphans:3;widows:3}
.code{box-decoration-break:clone;-webkit-box-decoration-break:clone}
.say,.code,summary{-webkit-print-color-adjust:exact;print-color-adjust:exact}
}
"""

// What tables look like, beside what all that is drawn looks like (makers.js).

export const ROW = 22; // px, the height of a row
export const HEADING = 27;
export const DETAIL_ROW = 20;
export const SIGHT = 484; // px of the box of many rows, which scrolls

export const TABLE_STYLE = `
.tb{ /* colours pulled towards the theme's ink: darker on paper, lighter on night */
 --torch:color-mix(in srgb,#2468b0 84%,var(--ink0));--python:color-mix(in srgb,#d28a1a 84%,var(--ink0));
 --backward:color-mix(in srgb,#c583c4 84%,var(--ink0));--memory:color-mix(in srgb,#2ca184 84%,var(--ink0));
 --other:color-mix(in srgb,#7b8087 84%,var(--bg));--more:color-mix(in srgb,#cf4f2c 84%,var(--ink0));
 --hover:color-mix(in srgb,var(--brand) 9%,transparent)}
.controls .sentence{color:var(--ink1);font-size:13px;flex:1 1 auto;min-width:0;max-width:100%;overflow-wrap:anywhere}
.controls>.seg:last-child{margin-left:auto}.side{margin:0;min-height:0}
.subject{font-family:var(--mono);font-size:12px;font-weight:600}
.figure{font-size:15px;font-weight:600;margin:0 14px;white-space:nowrap}.folded .code{color:var(--ink1)}
input{width:250px;max-width:100%}
.no-histogram .histogram,.no-interval .interval,.no-bar .bar,.no-change .change{display:none}.no-change tfoot td:first-child{white-space:normal;line-height:17px}
.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
th.text,th.code{overflow:hidden;text-overflow:ellipsis}
.pane{overflow-x:auto}.hint{position:sticky;left:0;width:fit-content}
.scrolls :is(td,th).verdict{position:sticky;right:0;background:var(--bg);box-shadow:-1px 0 var(--rule2);padding-left:6px}.pane.many{max-height:${SIGHT + 40}px;overflow-y:auto}
table{border-collapse:collapse;width:100%;table-layout:fixed;font-size:12.5px}table.dense{font-size:12px}
col.code{font-family:var(--mono);font-size:12px}
th{font-weight:400;color:var(--ink2);text-align:left;vertical-align:bottom;padding:0 8px 4px 0;line-height:15px;font-size:11.5px;white-space:nowrap}
thead{box-shadow:inset 0 -1px var(--rule1)}.many thead{position:sticky;top:0;background:var(--bg);z-index:1}
th small{display:block;font-size:11px;white-space:nowrap}th.r{text-align:right}th.axis{padding:0}
th button:hover,th[aria-sort=ascending],th[aria-sort=descending]{color:var(--ink1)}
th i{display:inline-block;border:3.5px solid transparent;margin:0 0 2px 4px}
[aria-sort=descending] i{border-top:4.5px solid var(--ink1);border-bottom:0}[aria-sort=ascending] i{border-bottom:4.5px solid var(--ink1);border-top:0}
[aria-sort=none] i{display:none}
.key{display:inline-flex;gap:5px;align-items:center;margin-right:7px}.key b{width:9px;height:9px;display:inline-block}
td{height:${ROW}px;line-height:${ROW}px;padding:0 8px 0 0;white-space:nowrap;overflow:hidden;text-overflow:ellipsis;vertical-align:middle}
td:last-child,th:last-child{padding-right:0}
td.r{text-align:right;overflow:visible}td.code,td.source{font-family:var(--mono);font-size:12px}
td.line{color:var(--ink2);font-family:var(--mono);font-size:11.5px}
td.picture{padding:0;overflow:hidden}td svg,th svg{display:block}
td.source{padding-left:14px;position:relative;border-left:1px solid var(--rule2);white-space:pre}
td .pad{visibility:hidden;user-select:none}
td .note{color:var(--ink2);margin-left:1px}td.source .note{margin-left:5px;font:11.5px var(--ui)}
.pane:not(.many) td.verdict{white-space:normal;line-height:16px}td.verdict .note{display:inline-block;margin-left:0}
.strong{font-weight:600}td.faster{color:var(--torch)}td.slower{color:var(--more)}
.k{color:var(--torch)}.s{color:color-mix(in srgb,#2ca184 70%,var(--ink0))}.c{color:var(--ink2)}
tbody tr.first>td,tfoot tr:first-child>td{border-top:1px solid var(--rule2)}tfoot tr:first-child>td{border-top-color:var(--rule1)}
tfoot td{overflow:visible}tfoot td.source{font:inherit;padding-left:0;border-left:0;white-space:normal;line-height:17px}
tbody tr.row:hover>td{background:var(--hover)}tbody tr.selected>td{background:var(--sel);color:var(--ink1)}tr.selected .note{color:var(--ink1)}
tr.heading td{height:${HEADING}px;line-height:30px;color:var(--ink2);font-size:11.5px;border-bottom:1px solid var(--rule2)}
tr.heading span+span{margin-left:24px}
tr.sums td{font-weight:600}tr.sums td.code{font-family:var(--ui);font-size:12.5px}tr.sums .note{font-weight:400;margin-left:8px}
td.code.quiet,tfoot td.code{font-family:var(--ui)}
tr.sums:not(:first-child)>*{border-top:1px solid var(--rule2)}tr.sums~tr.row>td:first-child{padding-left:14px}
select{font:12px/20px var(--ui);color:var(--ink1);background:var(--bg);border:1px solid var(--rule1);border-radius:3px;height:24px;max-width:260px}
.act{color:var(--ink2);font-size:11.5px;text-decoration:underline dotted;text-underline-offset:3px}.act:hover{color:var(--ink1)}
.open{position:absolute;left:2px;top:6px;width:10px;height:10px}td:not(.source) .open{position:relative;display:inline-block;left:0;top:1px;margin-right:4px}
.open::before{content:"";position:absolute;left:1px;top:1px;border:4px solid transparent;border-left:5px solid var(--rule1);border-right:0}
.open:hover::before{border-left-color:var(--ink2)}.open[aria-expanded=true]::before{transform:rotate(90deg);border-left-color:var(--ink2)}
td.detail{height:auto;padding:0;white-space:normal}.detail>div{padding:4px 0 8px 10px;margin-left:34px;border-left:2px solid var(--brand)}
.detail th{font-size:11px}.detail thead{box-shadow:inset 0 -1px var(--rule2)}.detail td{height:${DETAIL_ROW}px;line-height:${DETAIL_ROW}px;font-size:12px}.detail td.code{font-size:11.5px}
.under:empty,.under:has(>:only-child:empty){display:none}.under{margin:6px 0 0;font-size:11.5px;line-height:17px;color:var(--ink2)}
.doubt{clear:right;margin:8px 0 0;padding:1px 0 1px 9px;border-left:3px solid var(--more);font-size:12.5px;line-height:19px;overflow-wrap:anywhere}
.more{margin:6px 0 0;font-size:11.5px;line-height:17px;color:var(--ink2)}.more .doubt{color:var(--ink1)}
.foot .code{font-size:11px}
.insight{margin:2px 0 4px;font-size:12.5px;line-height:19px;overflow-wrap:anywhere}.insight p{margin:0 0 0 14px;color:var(--ink2)}
summary{cursor:pointer;list-style:none;padding-left:14px;position:relative}summary::-webkit-details-marker{display:none}
summary::before{content:"";position:absolute;left:1px;top:7px;border:4px solid transparent;border-left:5px solid var(--ink2);border-right:0}details[open]>summary::before{transform:rotate(90deg)}
summary .quiet{font-size:12.5px}.folded .inside{padding:8px 0 0 14px}.folded .doubt{margin-left:14px}
svg text{fill:var(--ink2);font:11px var(--ui)}svg text.one{fill:var(--ink1)}
.tick{stroke:var(--rule2)}.axisline{stroke:var(--rule1)}.band{fill:var(--ink2);opacity:.22}
.hollow{fill:var(--bg);stroke:var(--ink2);stroke-width:1.5}
.f-torch,.f-faster{fill:var(--torch)}.f-python{fill:var(--python)}.f-backward{fill:var(--backward)}.f-memory{fill:var(--memory)}
.f-other{fill:var(--other)}.f-slower{fill:var(--more)}.f-ink,.f-{fill:var(--ink2)}
.s-faster{stroke:var(--torch)}.s-slower{stroke:var(--more)}.s-{stroke:var(--ink2)}
.b-torch{background:var(--torch)}.b-python{background:var(--python)}.b-backward{background:var(--backward)}.b-memory{background:var(--memory)}.b-other{background:var(--other)}
@media (forced-colors:active){tbody tr.selected>td{background:Highlight;color:HighlightText;forced-color-adjust:none}}
@media print{.pane.many{max-height:none}}`;

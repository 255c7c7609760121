// codemode.paginate: all items of a tool that answers page by page. Made when a
// script first asks for it. call and describe are the script's own ways to the
// portal; nothing here can do what a script cannot.
(function (call, describe, linksOf) {
  'use strict';
  const cursorArgs = ['cursor', 'page_token', 'pageToken', 'next_token', 'nextToken', 'next_cursor', 'nextCursor', 'next_page_token', 'continuation_token', 'continuationToken', 'continuation', 'continue', 'marker', 'bookmark', 'page_cursor', 'start_cursor', 'after', 'starting_after', 'start_after', 'startAfter', 'skiptoken'];
  const pageArgs = ['page', 'page_number', 'pageNumber', 'page_num', 'pageNum', 'page_index', 'pageIndex'];
  const offsetArgs = ['offset', 'start', 'skip', 'start_at', 'startAt', 'start_index', 'startIndex', 'from'];
  const sizeArgs = ['per_page', 'perPage', 'page_size', 'pageSize', 'limit', 'size', 'max_results', 'maxResults', 'first', 'top', 'count'];
  const listNames = ['items', 'results', 'result', 'data', 'records', 'entries', 'values', 'rows', 'nodes', 'list', 'edges'];
  const nextNames = /^(?:@odata\.nextLink|next|next_?(?:page_?)?(?:cursor|token|link|url|marker|page|offset|uri)|end_?cursor|continuation(?:_?token)?|continue)$/i;
  const moreNames = /^(?:has_?more(?:_?(?:items|results|pages))?|has_?next(?:_?page)?|is_?truncated|more|truncated|incomplete_results)$/i;
  const lastNames = /^(?:is_?last(?:_?page)?|last|done|complete)$/i;
  const pagesNames = /^(?:total_?pages|page_?count|num_?pages|last_?page|pages)$/i;
  const totalNames = /^(?:total(?:_?(?:count|items|results|records|size))?|count_total|item_?count)$/i;
  const partialNames = /^(?:is_?)?partial(?:_?(?:results?|response|data))?$/i;
  const pageNames = /^(?:page|current_?page|page_?number|page_?index)$/i;
  const parse = JSON.parse;
  const isObject = v => v !== null && typeof v === 'object' && !Array.isArray(v);
  const at = (v, path) => String(path).split('.').reduce((o, k) => o == null ? undefined : o[k], v);
  const firstIn = (names, props) => names.find(n => Object.hasOwn(props, n));

  function listOf(page, path) {
    if (path !== undefined) {
      const list = typeof path === 'function' ? path(page) : at(page, path);
      if (!Array.isArray(list)) throw new TypeError('codemode.paginate: there is no list at ' + (typeof path === 'function' ? 'items(page)' : path));
      return list;
    }
    if (Array.isArray(page)) return page;
    if (!isObject(page)) throw new TypeError('codemode.paginate: the result is ' + (typeof page === 'string' ? 'text' : String(page)) + ', not a list: call the tool and read it yourself');
    for (const o of [page, ...listNames.map(n => page[n]).filter(isObject), ...Object.values(page).filter(isObject)]) {
      const known = listNames.find(n => Array.isArray(o[n]));
      if (known) return o[known];
      const lists = Object.keys(o).filter(k => Array.isArray(o[k]));
      if (lists.length === 1) return o[lists[0]];
      const full = lists.filter(k => o[k].length > 0);
      if (full.length === 1) return o[full[0]];
      if (lists.length > 1) throw new TypeError('codemode.paginate: the result has several lists (' + lists.join(', ') + '); say which: codemode.paginate(tool, args, {items: "' + lists[0] + '"})');
    }
    throw new TypeError('codemode.paginate: the result has no list; its fields are ' + Object.keys(page).slice(0, 12).join(', '));
  }

  // Whether a server says that it could not read all of a page.
  function isPartial(page) {
    return isObject(page) && Object.keys(page).some(k => partialNames.test(k) && page[k] === true);
  }

  // A text of JSON lines is a page too: its items are the lines, but for the one
  // that only says how to go on. Any other text stays what it is.
  function linesOf(text) {
    const lines = [];
    for (const line of text.split(/\r?\n/)) {
      if (line.trim() === '') continue;
      let v;
      try { v = parse(line); } catch { return text; }
      if (!isObject(v)) return text;
      lines.push(v);
    }
    return pageOf(lines);
  }

  function pageOf(lines) {
    const goesOn = v => isPartial(v) || Object.keys(v).length > 0 && Object.keys(v).every(k => nextNames.test(k) || moreNames.test(k) || totalNames.test(k));
    return { ...Object.assign({}, ...lines.filter(goesOn)), items: lines.filter(v => !goesOn(v)) };
  }

  // What a page says about the pages after it, from its own fields and those of
  // the objects in it, two levels deep; items are not looked into.
  function signs(page) {
    const s = {};
    const note = (k, v) => { if (s[k] === undefined || (s[k] === null || s[k] === '') && v) s[k] = v; };
    const look = (o, depth, inside) => {
      for (const k of Object.keys(o)) {
        const v = o[k];
        if (/^link$/i.test(k) && typeof v === 'string' && /rel="?next"?/.test(v)) {
          const m = /<([^>]*)>[^,]*rel="?next"?/.exec(v);
          if (m) note('next', m[1]), s.key = k;
        } else if (/^link$/i.test(k) && typeof v === 'string' && /rel="?(?:prev|first|last)"?/.test(v)) note('next', '');
        else if (nextNames.test(k) && (v === null || ['string', 'number', 'bigint'].includes(typeof v))) {
          if (s.next === undefined || v) s.key = k;
          note('next', v);
        } else if (inside === 'next' && ['after', 'cursor', 'href', 'token', 'url', 'link', 'page'].includes(k) && typeof v !== 'object') note('next', v), s.key = k;
        else if (/pag(?:e|ing|ination)|meta|cursor/i.test(inside) && k === 'cursor' && typeof v === 'string') note('next', v), s.key = k;
        else if (moreNames.test(k) && typeof v === 'boolean') note('more', v);
        else if (lastNames.test(k) && typeof v === 'boolean') note('more', !v);
        else if (pagesNames.test(k) && typeof v === 'number') note('pages', v);
        else if (totalNames.test(k) && typeof v === 'number') note('total', v);
        else if (pageNames.test(k) && typeof v === 'number') note('page', v);
        else if (isObject(v) && depth < 3) look(v, depth + 1, /^next$/i.test(k) ? 'next' : k);
      }
    };
    if (isObject(page)) look(page, 0, '');
    return s;
  }

  // What the headers of an HTTP API say, where the page itself says nothing.
  function fromHeaders(links) {
    if (links === undefined) return {};
    const m = /<([^>]*)>[^,]*rel="?next"?/.exec(links.link ?? '');
    if (m) return { next: m[1], key: 'link' };
    if (/^[0-9]+$/.test(links.nextPage ?? '')) return { next: Number(links.nextPage), key: 'next_page' };
    return links.nextPage === '' || /rel="?(?:prev|first|last)"?/.test(links.link ?? '') ? { next: '' } : {};
  }

  // The arguments of the next page, or null at the end.
  function following(args, page, list, have, props, options, links) {
    const s = options.next === undefined ? { ...links, ...signs(page) } : { next: typeof options.next === 'function' ? options.next(page) : at(page, options.next), key: 'next' };
    const typed = (name, v) => /^(?:integer|number)$/.test(props[name]?.type) && typeof v === 'string' && /^\d+$/.test(v) ? Number(v) : v;
    const pageArg = firstIn(pageArgs, props);
    // An offset is a number: a "from" or "start" may as well be a time.
    const offsetArg = offsetArgs.find(n => Object.hasOwn(props, n) && (args[n] === undefined ? /integer|number/.test(String(props[n]?.type ?? 'number')) : /^\d+$/.test(String(args[n]))));
    const cursorArg = options.arg ?? (Object.hasOwn(args, s.key ?? '') ? s.key : undefined)
      ?? cursorArgs.find(n => Object.hasOwn(props, n) && (s.key ?? '').toLowerCase().replace(/_/g, '').endsWith(n.toLowerCase().replace(/_/g, ''))) ?? firstIn(cursorArgs, props);
    const sure = s.next !== undefined && s.next !== null && s.next !== '' && s.next !== 0;
    if (s.more === false && !s.next) return null;
    if (sure && s.more !== false) {
      const v = s.next;
      if (typeof v === 'string' && options.arg === undefined && /^(?:https?:\/\/|\/|\?)/.test(v)) {
        const query = new URL(v, 'https://relative.invalid/').searchParams, out = { ...args };
        let known = 0;
        for (const [k, value] of query) if (Object.hasOwn(props, k)) { out[k] = typed(k, value); known++; }
        if (known > 0) return out;
      }
      if (options.arg === undefined && typeof v !== 'string' && /page/i.test(s.key) && pageArg) return { ...args, [pageArg]: v };
      if (options.arg === undefined && /offset/i.test(s.key) && offsetArg) return { ...args, [offsetArg]: typed(offsetArg, v) };
      if (cursorArg) return { ...args, [cursorArg]: typed(cursorArg, v) };
      if (offsetArg && Number(v) === Number(args[offsetArg] ?? 0) + list.length) return { ...args, [offsetArg]: Number(v) };
      if (pageArg && /^\d+$/.test(String(v))) return { ...args, [pageArg]: typed(pageArg, v) };
      throw new Error('codemode.paginate: there are more pages (' + s.key + ' is set), but no argument of the tool is known to take it; say which: codemode.paginate(tool, args, {arg: "…"}). Its arguments are ' + Object.keys(props).join(', '));
    }
    if (s.next !== undefined && s.more !== true && s.pages === undefined) return null; // said: there is none
    const start = args[pageArg] ?? s.page ?? props[pageArg]?.default ?? 1;
    const size = Number(args[firstIn(sizeArgs, args)] ?? props[firstIn(sizeArgs, props)]?.default ?? 0);
    const base = props[pageArg]?.minimum === 0 || start === 0 && args[pageArg] === undefined ? 1 : 0;
    let more;
    if (s.more !== undefined) more = s.more;
    else if (s.pages !== undefined) more = (s.page ?? start) + base < s.pages && list.length > 0;
    else if (s.total !== undefined && (pageArg || offsetArg)) more = have < s.total && list.length > 0;
    else if (pageArg || offsetArg) more = list.length > 0 && (size === 0 || list.length >= size);
    else return null;
    if (!more) return null;
    if (pageArg) return { ...args, [pageArg]: Number(start) + 1 };
    if (offsetArg) return { ...args, [offsetArg]: Number(args[offsetArg] ?? 0) + list.length };
    const last = list[list.length - 1];
    if (cursorArg && isObject(last) && last.id !== undefined) return { ...args, [cursorArg]: last.id };
    throw new Error('codemode.paginate: the result says that there are more items, but the tool has no argument for a page; its arguments are ' + (Object.keys(props).join(', ') || 'none'));
  }

  return async function paginate(tool, args, options) {
    const name = typeof tool === 'function' ? tool.name : tool;
    if (typeof name !== 'string' || name === '') throw new TypeError('codemode.paginate takes a tool, or its name, then its arguments: codemode.paginate(codemode.<name>, {…})');
    options = options ?? {};
    for (const k of Object.keys(options)) if (!['items', 'next', 'arg', 'max'].includes(k)) throw new TypeError('codemode.paginate has no option ' + k + ': it takes items, next, arg and max. max bounds the items of all pages; what the tool takes, such as a page size, stands in its arguments: codemode.paginate(tool, {…}, {max: 100})');
    if (args !== undefined && args !== null && !isObject(args)) throw new TypeError('codemode.paginate takes the arguments of the tool as one object: codemode.paginate(codemode.<name>, {…})');
    const about = await describe(name), props = about.inputSchema?.properties ?? {};
    let now = { ...args };
    const sizeArg = firstIn(sizeArgs, props), most = props[sizeArg]?.maximum;
    if (sizeArg && now[sizeArg] === undefined && most > 0 && most <= 1000) now[sizeArg] = most;
    const max = options.max ?? Infinity, all = [], asked = new Set();
    let before, byHeader = false, marked = false, partial = 0, lined = false;
    for (let pages = 0; ; pages++) {
      const key = JSON.stringify(now);
      if (asked.has(key)) throw new Error('codemode.paginate: the page after number ' + pages + ' is one that was read before; the tool repeats itself after ' + all.length + ' items');
      asked.add(key);
      let page;
      try {
        page = await call(name, now);
      } catch (e) {
        // How many items one page has changes nothing about all of them, so a
        // size that the tool will not have is left to the tool.
        const wished = firstIn(sizeArgs, now);
        if (pages === 0 && wished !== undefined && /^read\b/.test(about.class) && (e?.code === 'tool_error' || e?.code === 'protocol_error')) {
          const plain = { ...now }; // no pattern: this code is guarded in plans
          delete plain[wished];
          try {
            page = await call(name, plain);
          } catch { throw e; }
          console.warn('codemode.paginate: ' + name + ' refused ' + wished + ' ' + now[wished] + ' (' + e.message + '); it was read in pages of its own size');
          now = plain;
        }
        if (page === undefined) {
          if (pages > 0 && e instanceof Error) {
            e.message += ' (codemode.paginate had read ' + all.length + ' items of ' + pages + ' pages by then)';
            e.items = all;
          }
          throw e;
        }
      }
      if (typeof page === 'string') {
        page = linesOf(page);
        lined = isObject(page);
      } else if (lined && isObject(page)) page = pageOf([page]); // a text of one line
      if (isPartial(page)) {
        if (++partial < 3 && /^read\b/.test(about.class)) {
          asked.delete(key);
          pages--;
          continue; // as a person would: ask again
        }
        console.warn('codemode.paginate: ' + name + ' says that page ' + (pages + 1) + ' is partial' + (partial < 3 ? '' : ', also when asked again') + ': items may be missing in the result');
      } else if (partial > 0) console.warn('codemode.paginate: page ' + (pages + 1) + ' of ' + name + ' was partial and was read again, whole');
      partial = 0;
      const list = listOf(page, options.items);
      let links = fromHeaders(linksOf(page));
      if (links.next) byHeader = true;
      else if (byHeader) links = { next: '' }; // the pages before had one
      if (!byHeader && options.next === undefined && !links.next) {
        const said = signs(page).next;
        if (said) marked = true;
        else if (marked && said === undefined) links = { next: '' }; // so did these
      }
      const text = list.length > 0 && pages > 0 && list.length === before?.length ? JSON.stringify(list) : undefined;
      if (text !== undefined && text === JSON.stringify(before)) {
        const s = signs(page);
        if (s.next || s.more) throw new Error('codemode.paginate: pages ' + pages + ' and ' + (pages + 1) + ' are the same, though the tool says that there is more; it repeats itself after ' + all.length + ' items');
        console.warn('codemode.paginate: ' + name + ' gave the same page twice, so its argument for pages seems to do nothing; the result has the items of the first ' + pages);
        return all;
      }
      before = list;
      for (const x of list) all.push(x);
      if (all.length >= max) return all.slice(0, max);
      now = following(now, page, list, all.length, props, options, links);
      if (now === null) return all;
    }
  };
})

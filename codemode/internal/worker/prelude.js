// What goja lacks of the language and what scripts expect around it. Runs once
// in every fresh realm, before the script. Everything here is the script's to
// change; nothing the sandbox depends on is read from here later.
(function (G) {
  'use strict';
  const define = (o, k, value) => Object.defineProperty(o, k, { value, writable: true, configurable: true, enumerable: false });
  const add = (o, members) => { for (const k of Object.keys(members)) if (!(k in o)) define(o, k, members[k]); };
  const own = (o, k) => Object.prototype.hasOwnProperty.call(o, k);

  // Symbols: the registered ones are what esbuild's helpers fall back to.
  for (const n of ['asyncIterator', 'dispose', 'asyncDispose'])
    if (!Symbol[n]) Object.defineProperty(Symbol, n, { value: Symbol.for('Symbol.' + n) });

  add(Object, {
    groupBy(items, key) {
      const out = Object.create(null);
      let i = 0;
      for (const x of items) {
        const k = key(x, i++);
        if (own(out, k)) out[k].push(x); else out[k] = [x];
      }
      return out;
    },
  });
  add(Map, {
    groupBy(items, key) {
      const out = new Map();
      let i = 0;
      for (const x of items) {
        const k = key(x, i++), list = out.get(k);
        if (list) list.push(x); else out.set(k, [x]);
      }
      return out;
    },
  });
  add(Promise, {
    withResolvers() {
      let resolve, reject;
      const promise = new this((a, b) => { resolve = a; reject = b; });
      return { promise, resolve, reject };
    },
    try(f, ...args) { return new this(done => done(f(...args))); },
  });
  add(Array, {
    async fromAsync(source, map, self) {
      const out = [];
      const take = async v => { out.push(map ? await map.call(self, v, out.length) : v); };
      const make = source[Symbol.asyncIterator];
      if (make) {
        const it = make.call(source);
        for (let r = await it.next(); !r.done; r = await it.next()) await take(r.value);
      } else {
        for (const v of typeof source[Symbol.iterator] === 'function' ? source : Array.from(source)) await take(await v);
      }
      return out;
    },
  });

  // A promise has no keys: only whoever forgot an await asks for them.
  const NativePromise = Promise;
  const misused = (p, use) => { if (p instanceof NativePromise) G['%misused'](p, use); };
  for (const name of ['keys', 'values', 'entries', 'getOwnPropertyNames', 'fromEntries']) {
    const native = Object[name];
    define(Object, name, { [name](o) { misused(o, 'given to Object.' + name + ', which finds nothing in it'); return native(o); } }[name]);
  }
  const assign = Object.assign;
  define(Object, 'assign', { assign(target, ...sources) {
    for (const s of sources) misused(s, 'given to Object.assign, which finds nothing in it');
    return assign(target, ...sources);
  } }.assign);
  // Iterator helpers. A promise as the answer of a callback would always be true.
  const told = (name, r) => {
    if (r && typeof r === 'object') misused(r, 'callback ' + name);
    return r;
  };
  const iteratorPrototype = Object.getPrototypeOf(Object.getPrototypeOf([][Symbol.iterator]()));
  add(iteratorPrototype, {
    *map(f) { let i = 0; for (const x of this) yield f(x, i++); },
    *filter(f) { let i = 0; for (const x of this) if (told('filter', f(x, i++))) yield x; },
    *take(n) { if (n > 0) for (const x of this) { yield x; if (--n <= 0) return; } },
    *drop(n) { for (const x of this) if (n > 0) n--; else yield x; },
    *flatMap(f) { let i = 0; for (const x of this) yield* f(x, i++); },
    toArray() { return [...this]; },
    forEach(f) { let i = 0; for (const x of this) f(x, i++); },
    some(f) { let i = 0; for (const x of this) if (told('some', f(x, i++))) return true; return false; },
    every(f) { let i = 0; for (const x of this) if (!told('every', f(x, i++))) return false; return true; },
    find(f) { let i = 0; for (const x of this) if (told('find', f(x, i++))) return x; },
    reduce(f, ...start) {
      let have = start.length > 0, acc = start[0], i = 0;
      for (const x of this) { acc = have ? f(acc, x, i) : x; have = true; i++; }
      if (!have) throw new TypeError('reduce of an empty iterator with no initial value');
      return acc;
    },
  });
  if (!G.Iterator) {
    const Iterator = function Iterator() { throw new TypeError('Iterator is abstract'); };
    Iterator.prototype = iteratorPrototype;
    Iterator.from = o => {
      const it = typeof o[Symbol.iterator] === 'function' ? o[Symbol.iterator]() : o;
      if (iteratorPrototype.isPrototypeOf(it)) return it;
      return (function* () { for (let r = it.next(); !r.done; r = it.next()) yield r.value; })();
    };
    define(G, 'Iterator', Iterator);
  }

  add(String.prototype, {
    isWellFormed() { return !loneSurrogate.test(String(this)); },
    toWellFormed() { return String(this).replace(new RegExp(loneSurrogate.source, 'g'), '\ufffd'); },
  });
  const loneSurrogate = /[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/;
  add(RegExp, { escape: s => String(s).replace(/[\\^$.*+?()[\]{}|\/\-]/g, '\\$&') });

  // \p{…} is only right in the engine's second matcher, which a lookahead selects.
  const Native = RegExp;
  const Shim = function RegExp(pattern, flags) {
    if (typeof pattern === 'string' && /\\[pP]\{/.test(pattern) && /u/.test(String(flags))) pattern = '(?=)' + pattern;
    if (!new.target) return Native(pattern, flags);
    return Reflect.construct(Native, flags === undefined ? [pattern] : [pattern, flags], new.target === Shim ? Native : new.target);
  };
  for (const k of Reflect.ownKeys(Native))
    if (k !== 'prototype' && k !== 'length' && k !== 'name') Object.defineProperty(Shim, k, Object.getOwnPropertyDescriptor(Native, k));
  Shim.prototype = Native.prototype;
  define(Native.prototype, 'constructor', Shim);
  define(G, 'RegExp', Shim);

  // Large integers arrive as BigInt; JSON.stringify must not fail on one row.
  define(BigInt.prototype, 'toJSON', function toJSON() { return JSON.rawJSON(this.toString()); });

  {
    // English formats in UTC, for want of a real Intl: what scripts ask of
    // toLocaleString. What is not known is refused, not ignored.
    const refuse = what => { throw new RangeError(what + ' is not available here: numbers and dates are formatted in English and UTC only, so write this by hand'); };
    const english = (locale, also) => {
      const l = String((Array.isArray(locale) ? locale[0] : locale) ?? 'en-US');
      if (!/^en(-US)?$/.test(l) && !also.includes(l)) refuse('the locale ' + l);
      return l;
    };
    const only = (o, known) => { for (const k of Object.keys(o)) if (o[k] !== undefined && !known.includes(k)) refuse('the option ' + k); };
    const currencies = { USD: '$', EUR: '€', GBP: '£', JPY: '¥', CNY: 'CN¥', INR: '₹', KRW: '₩', BRL: 'R$', CAD: 'CA$', AUD: 'A$', MXN: 'MX$', NZD: 'NZ$', ILS: '₪', VND: '₫' };
    // Halves go up as they are written, not as their binary form would.
    const fixed = (x, digits) => {
      const shifted = x < 1e15 && !/e/.test(String(x)) ? Number(Math.round(Number(x + 'e' + digits)) + 'e-' + digits) : x;
      return (shifted === shifted ? shifted : x).toFixed(digits);
    };
    const fractionFor = (x, significant) => x === 0 ? 0 : Math.min(20, Math.max(0, significant - 1 - Math.floor(Math.log10(Math.abs(x)))));
    const numberText = (value, locale, options) => {
      const o = options ?? {}, big = typeof value === 'bigint';
      english(locale, ['en-GB', 'en-CA', 'en-AU']);
      only(o, ['style', 'currency', 'currencyDisplay', 'minimumFractionDigits', 'maximumFractionDigits', 'maximumSignificantDigits', 'useGrouping', 'notation', 'compactDisplay', 'minimumIntegerDigits', 'localeMatcher', 'numberingSystem']);
      for (const k of ['minimumFractionDigits', 'maximumFractionDigits', 'maximumSignificantDigits', 'minimumIntegerDigits'])
        if (o[k] !== undefined && !(o[k] >= (/S|I/.test(k) ? 1 : 0) && o[k] <= 20)) throw new RangeError(k + ' is a number from ' + (/S|I/.test(k) ? 1 : 0) + ' to 20');
      let n = big ? value : Number(value), before = '', after = '', least = 0, most = 3;
      if (o.style === 'percent') {
        n = big ? n * 100n : n * 100;
        after = '%';
        most = 0;
      } else if (o.style === 'currency') {
        const code = String(o.currency ?? '').toUpperCase();
        if (!/^[A-Z]{3}$/.test(code)) throw new TypeError('the style currency needs currency: "USD" or another code of three letters');
        least = most = ['JPY', 'KRW', 'VND', 'CLP', 'ISK'].includes(code) ? 0 : 2;
        before = o.currencyDisplay === undefined || /^(?:narrowS|s)ymbol$/.test(o.currencyDisplay) ? currencies[code] ?? code + '\u00a0' : o.currencyDisplay === 'code' ? code + '\u00a0' : refuse('currencyDisplay ' + o.currencyDisplay);
      } else if (o.style !== undefined && o.style !== 'decimal') refuse('the style ' + o.style);
      if (!big && !isFinite(n)) return isNaN(n) ? 'NaN' : (n < 0 ? '-∞' : '∞');
      if (o.maximumSignificantDigits !== undefined && !big) most = fractionFor(n, o.maximumSignificantDigits), n = Number(n.toPrecision(o.maximumSignificantDigits)), least = 0;
      if (o.notation === 'compact' && o.compactDisplay !== 'long' && !big) {
        let i = 0;
        const signs = ['', 'K', 'M', 'B', 'T'], round = x => Number(fixed(Math.abs(x), o.maximumFractionDigits ?? (Math.abs(x) < 100 ? fractionFor(x, 2) : 0)));
        while (i < 4 && Math.abs(round(n / 1000 ** i)) >= 1000) i++;
        n /= 1000 ** i;
        after = signs[i] + after;
        least = 0;
        most = Math.abs(n) < 100 ? fractionFor(n, 2) : 0;
      } else if (o.notation !== undefined && o.notation !== 'standard') refuse('the notation ' + o.notation);
      if (o.maximumFractionDigits !== undefined) most = Number(o.maximumFractionDigits), least = Math.min(least, most);
      if (o.minimumFractionDigits !== undefined) least = Number(o.minimumFractionDigits), most = Math.max(least, most);
      const digits = (big ? (n < 0n ? -n : n).toString() : fixed(Math.abs(n), most)).split('.');
      let whole = digits[0], part = digits[1] ?? '';
      while (part.length > least && part.endsWith('0')) part = part.slice(0, -1);
      part = part.padEnd(least, '0');
      whole = whole.padStart(o.minimumIntegerDigits ?? 1, '0');
      if (o.useGrouping !== false && o.notation !== 'compact' && !/e/.test(whole)) whole = whole.replace(/\B(?=(\d{3})+$)/g, ',');
      return (n < 0 || Object.is(n, -0) ? '-' : '') + before + whole + (part && '.' + part) + after;
    };
    define(Number.prototype, 'toLocaleString', function toLocaleString(locale, options) { return numberText(this, locale, options); });
    define(BigInt.prototype, 'toLocaleString', function toLocaleString(locale, options) { return numberText(BigInt(this), locale, options); });

    const months = ['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October', 'November', 'December'];
    const days = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
    const dateParts = ['weekday', 'year', 'month', 'day'], timeParts = ['hour', 'minute', 'second', 'fractionalSecondDigits'];
    const dateText = (d, locale, options, wanted, standard) => {
      const l = english(locale, ['en-GB', 'en-CA', 'sv-SE', 'sv']);
      let o = { ...options };
      if (!/^en(?:-US)?$/.test(l)) for (const k of Object.keys(o)) if (k !== 'timeZone' && o[k] !== undefined) refuse('the option ' + k + ' with the locale ' + l);
      only(o, [...dateParts, ...timeParts, 'hour12', 'hourCycle', 'timeZone', 'timeZoneName', 'dateStyle', 'timeStyle', 'localeMatcher', 'calendar', 'numberingSystem']);
      if (!/^(?:UTC|GMT|Etc\/UTC|Etc\/GMT)$/i.test(o.timeZone ?? 'UTC')) refuse('the time zone ' + o.timeZone);
      if (isNaN(d)) return 'Invalid Date';
      let join = ', ', two = false;
      if (o.dateStyle !== undefined || o.timeStyle !== undefined) {
        const ds = { full: { weekday: 'long', year: 'numeric', month: 'long', day: 'numeric' }, long: { year: 'numeric', month: 'long', day: 'numeric' }, medium: { year: 'numeric', month: 'short', day: 'numeric' }, short: { year: '2-digit', month: 'numeric', day: 'numeric' } };
        const ts = { full: { hour: 'numeric', minute: '2-digit', second: '2-digit', timeZoneName: 'short' }, long: { hour: 'numeric', minute: '2-digit', second: '2-digit', timeZoneName: 'short' }, medium: { hour: 'numeric', minute: '2-digit', second: '2-digit' }, short: { hour: 'numeric', minute: '2-digit' } };
        if (/full|long/.test(o.dateStyle)) join = ' at ';
        o = { ...o, ...(o.dateStyle === undefined ? {} : ds[o.dateStyle] ?? refuse('dateStyle ' + o.dateStyle)), ...(o.timeStyle === undefined ? {} : ts[o.timeStyle] ?? refuse('timeStyle ' + o.timeStyle)) };
      } else if (!wanted.some(k => o[k] !== undefined)) {
        if (standard !== 'time') o = { ...o, year: 'numeric', month: 'numeric', day: 'numeric' };
        if (standard !== 'date') o = { ...o, hour: 'numeric', minute: '2-digit', second: '2-digit' };
      }
      const pad = n => String(n).padStart(2, '0'), num = (n, how) => how === '2-digit' ? pad(n % 100) : String(n);
      const Y = d.getUTCFullYear(), M = d.getUTCMonth(), D = d.getUTCDate();
      const short = (name, how) => how === 'long' ? name : how === 'short' ? name.slice(0, 3) : name[0];
      const week = o.weekday === undefined ? '' : short(days[d.getUTCDay()], o.weekday);
      let date = '';
      if (['long', 'short', 'narrow'].includes(o.month)) {
        const m = short(months[M], o.month), day = o.day === undefined ? '' : num(D, o.day), year = o.year === undefined ? '' : num(Y, o.year);
        date = m + (day && ' ' + day) + (year && (day ? ', ' : ' ') + year);
      } else if (/^sv|^en-CA/.test(l)) {
        date = [o.year && num(Y, o.year), o.month && pad(M + 1), o.day && pad(D)].filter(Boolean).join('-');
        two = true;
      } else if (l === 'en-GB') date = [o.day && pad(D), o.month && pad(M + 1), o.year && num(Y, o.year)].filter(Boolean).join('/');
      else date = [o.month && num(M + 1, o.month), o.day && num(D, o.day), o.year && num(Y, o.year)].filter(Boolean).join('/');
      date = [week, date].filter(Boolean).join(', ');
      let time = '';
      const H = d.getUTCHours(), is24 = o.hour12 === false || o.hour12 === undefined && (/^h2[34]$/.test(o.hourCycle) || /^sv|^en-GB/.test(l));
      const hour = o.hour === undefined ? undefined : is24 ? pad(H) : num(H % 12 || 12, o.hour);
      const minute = o.minute === undefined ? undefined : hour !== undefined || o.second !== undefined ? pad(d.getUTCMinutes()) : String(d.getUTCMinutes());
      let second = o.second === undefined ? undefined : minute !== undefined ? pad(d.getUTCSeconds()) : String(d.getUTCSeconds());
      if (o.fractionalSecondDigits) second = (second ?? '') + '.' + String(d.getUTCMilliseconds()).padStart(3, '0').slice(0, o.fractionalSecondDigits);
      time = [hour, minute, second].filter(x => x !== undefined).join(':');
      if (hour !== undefined && !is24) time += l === 'en-CA' ? (H < 12 ? ' a.m.' : ' p.m.') : (H < 12 ? ' AM' : ' PM');
      if (o.timeZoneName !== undefined) time = [time, 'UTC'].filter(Boolean).join(' ');
      return [date, time].filter(Boolean).join(/^sv/.test(l) && two ? ' ' : join);
    };
    for (const [name, wanted, standard] of [['toLocaleDateString', dateParts, 'date'], ['toLocaleTimeString', timeParts, 'time'], ['toLocaleString', [...dateParts, ...timeParts], 'both']])
      define(Date.prototype, name, { [name](locale, options) { return dateText(this, locale, options, wanted, standard); } }[name]);

    const formatter = format => function (locale, options) {
      const o = { ...options };
      format(1, locale, o); // what is not known is refused here, as elsewhere
      return { format: x => format(x, locale, o), resolvedOptions: () => ({ locale: 'en-US', numberingSystem: 'latn', timeZone: 'UTC', ...o }), formatToParts: () => refuse('formatToParts') };
    };
    const intl = {
      NumberFormat: formatter((x, l, o) => numberText(x, l, o)),
      DateTimeFormat: formatter((x, l, o) => dateText(x === undefined ? new Date() : new Date(x), l, o, [...dateParts, ...timeParts], 'date')),
    };
    for (const n of ['Collator', 'DisplayNames', 'DurationFormat', 'ListFormat', 'Locale', 'PluralRules', 'RelativeTimeFormat', 'Segmenter'])
      intl[n] = function () { refuse('Intl.' + n); };
    add(G, { Intl: intl });
  }

  add(G, {
    WeakRef: class WeakRef { #target; constructor(t) { this.#target = t; } deref() { return this.#target; } },
    FinalizationRegistry: class FinalizationRegistry { register() {} unregister() { return false; } },
    queueMicrotask(f) { Promise.resolve().then(f); },
    structuredClone(value) {
      const seen = new Map();
      const clone = x => {
        if (typeof x === 'function' || typeof x === 'symbol') throw new TypeError('DataCloneError: a ' + typeof x + ' cannot be cloned');
        if (x === null || typeof x !== 'object') return x;
        if (seen.has(x)) return seen.get(x);
        let out;
        const keep = o => { seen.set(x, o); return o; };
        if (Array.isArray(x)) { out = keep([]); for (const y of x) out.push(clone(y)); return out; }
        if (x instanceof Date) return keep(new Date(x.getTime()));
        if (x instanceof Native) return keep(new Native(x.source, x.flags));
        if (x instanceof Map) { out = keep(new Map()); for (const [k, v] of x) out.set(clone(k), clone(v)); return out; }
        if (x instanceof Set) { out = keep(new Set()); for (const v of x) out.add(clone(v)); return out; }
        if (x instanceof Error) { out = keep(new Error(x.message)); define(out, 'name', x.name); return out; }
        if (x instanceof ArrayBuffer || ArrayBuffer.isView(x) && x.slice) return keep(x.slice());
        if (x instanceof Promise) throw new TypeError('DataCloneError: a promise cannot be cloned');
        out = keep({});
        for (const k of Object.keys(x)) out[k] = clone(x[k]);
        return out;
      };
      return clone(value);
    },
    btoa(s) {
      s = String(s);
      const bytes = new Uint8Array(s.length);
      for (let i = 0; i < s.length; i++) {
        const c = s.charCodeAt(i);
        if (c > 255) throw new TypeError('InvalidCharacterError: btoa takes characters up to U+00FF; encode with TextEncoder first');
        bytes[i] = c;
      }
      return bytes.toBase64();
    },
    atob(s) {
      let out = '';
      for (const c of Uint8Array.fromBase64(String(s).replace(/\s/g, ''))) out += String.fromCharCode(c);
      return out;
    },
    TextEncoder: class TextEncoder {
      get encoding() { return 'utf-8'; }
      encode(s = '') {
        const out = [];
        for (const ch of String(s)) {
          let c = ch.codePointAt(0);
          if (c >= 0xd800 && c <= 0xdfff) c = 0xfffd;
          if (c < 0x80) out.push(c);
          else if (c < 0x800) out.push(0xc0 | c >> 6, 0x80 | c & 63);
          else if (c < 0x10000) out.push(0xe0 | c >> 12, 0x80 | c >> 6 & 63, 0x80 | c & 63);
          else out.push(0xf0 | c >> 18, 0x80 | c >> 12 & 63, 0x80 | c >> 6 & 63, 0x80 | c & 63);
        }
        return new Uint8Array(out);
      }
    },
    TextDecoder: class TextDecoder {
      constructor(label = 'utf-8') {
        if (!/^utf-?8$/i.test(label)) throw new RangeError('TextDecoder knows utf-8 only');
      }
      get encoding() { return 'utf-8'; }
      decode(input) {
        if (input === undefined) return '';
        const b = input instanceof ArrayBuffer ? new Uint8Array(input) : new Uint8Array(input.buffer, input.byteOffset, input.byteLength);
        let out = '';
        for (let i = b[0] === 0xef && b[1] === 0xbb && b[2] === 0xbf ? 3 : 0; i < b.length;) {
          const c = b[i++];
          const more = c < 0x80 ? 0 : c >= 0xc2 && c < 0xe0 ? 1 : c >= 0xe0 && c < 0xf0 ? 2 : c >= 0xf0 && c < 0xf5 ? 3 : -1;
          let point = more === 0 ? c : more === 1 ? c & 31 : more === 2 ? c & 15 : c & 7, k = 0;
          while (k < more && i < b.length && (b[i] & 0xc0) === 0x80) { point = point << 6 | b[i++] & 63; k++; }
          const bad = more < 0 || k < more || more === 2 && point < 0x800 || more === 3 && (point < 0x10000 || point > 0x10ffff) || point >= 0xd800 && point <= 0xdfff;
          out += bad ? '\ufffd' : String.fromCodePoint(point);
        }
        return out;
      }
    },
    crypto: Object.freeze({
      randomUUID() {
        const hex = n => { let s = ''; while (s.length < n) s += Math.floor(Math.random() * 16).toString(16); return s; };
        return hex(8) + '-' + hex(4) + '-4' + hex(3) + '-' + '89ab'[Math.floor(Math.random() * 4)] + hex(3) + '-' + hex(12);
      },
    }),
  });

  // URL: enough to build and take apart http addresses.
  const encode = s => encodeURIComponent(s).replace(/%20/g, '+').replace(/[!'()~]/g, c => '%' + c.charCodeAt(0).toString(16).toUpperCase());
  const decode = s => { s = s.replace(/\+/g, ' '); try { return decodeURIComponent(s); } catch { return s; } };
  add(G, {
    URLSearchParams: class URLSearchParams {
      #list = [];
      #changed;
      constructor(init = '', changed) {
        if (typeof changed === 'function') this.#changed = changed;
        if (typeof init === 'string') {
          for (const part of init.replace(/^\?/, '').split('&')) {
            if (part === '') continue;
            const eq = part.indexOf('=');
            this.#list.push(eq < 0 ? [decode(part), ''] : [decode(part.slice(0, eq)), decode(part.slice(eq + 1))]);
          }
        } else if (typeof init[Symbol.iterator] === 'function') for (const [k, v] of init) this.#list.push([String(k), String(v)]);
        else for (const k of Object.keys(init)) this.#list.push([k, String(init[k])]);
      }
      #touch() { if (this.#changed) this.#changed(this.toString()); }
      append(k, v) { this.#list.push([String(k), String(v)]); this.#touch(); }
      delete(k) { this.#list = this.#list.filter(e => e[0] !== String(k)); this.#touch(); }
      get(k) { const e = this.#list.find(e => e[0] === String(k)); return e ? e[1] : null; }
      getAll(k) { return this.#list.filter(e => e[0] === String(k)).map(e => e[1]); }
      has(k) { return this.#list.some(e => e[0] === String(k)); }
      set(k, v) {
        const i = this.#list.findIndex(e => e[0] === String(k));
        if (i < 0) this.#list.push([String(k), String(v)]);
        else { this.#list[i][1] = String(v); this.#list = this.#list.filter((e, j) => j <= i || e[0] !== String(k)); }
        this.#touch();
      }
      sort() { this.#list.sort((a, b) => a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0); this.#touch(); }
      forEach(f) { for (const [k, v] of this.#list) f(v, k, this); }
      *entries() { for (const [k, v] of this.#list) yield [k, v]; }
      *keys() { for (const [k] of this.#list) yield k; }
      *values() { for (const [, v] of this.#list) yield v; }
      [Symbol.iterator]() { return this.entries(); }
      get size() { return this.#list.length; }
      toString() { return this.#list.map(([k, v]) => encode(k) + '=' + encode(v)).join('&'); }
      toJSON() { return this.toString(); }
    },
  });
  const Params = G.URLSearchParams;
  const defaultPort = { 'http:': '80', 'https:': '443', 'ws:': '80', 'wss:': '443' };
  const shape = /^([a-z][a-z0-9+.-]*:)(?:\/\/(?:([^:@\/?#]*)(?::([^@\/?#]*))?@)?(\[[0-9a-f:.]+\]|[^:\/?#]*)(?::(\d*))?)?([^?#]*)(\?[^#]*)?(#.*)?$/i;
  const dots = path => {
    const out = [];
    const parts = path.split('/');
    for (let i = 0; i < parts.length; i++) {
      const p = parts[i];
      if (p === '..') { if (out.length > 1) out.pop(); if (i === parts.length - 1) out.push(''); }
      else if (p !== '.') out.push(p);
      else if (i === parts.length - 1) out.push('');
    }
    return out.join('/');
  };
  add(G, {
    URL: class URL {
      constructor(url, base) {
        url = String(url).trim();
        let m = shape.exec(url);
        if (!m && base !== undefined) {
          const b = new URL(base);
          const root = b.protocol + '//' + b.host;
          if (url.startsWith('//')) url = b.protocol + url;
          else if (url.startsWith('/')) url = root + url;
          else if (url.startsWith('?')) url = root + b.pathname + url;
          else if (url.startsWith('#') || url === '') url = root + b.pathname + b.search + url;
          else url = root + b.pathname.replace(/[^\/]*$/, '') + url;
          m = shape.exec(url);
        }
        if (!m || (m[1].toLowerCase() in defaultPort && !m[4])) throw new TypeError('Invalid URL: ' + url.slice(0, 100));
        this.protocol = m[1].toLowerCase();
        this.username = m[2] || '';
        this.password = m[3] || '';
        this.hostname = (m[4] || '').toLowerCase();
        this.port = m[5] && m[5] !== defaultPort[this.protocol] ? m[5] : '';
        const web = this.protocol in defaultPort;
        this.pathname = encodeURI(web ? dots(m[6] || '/') : m[6]).replace(/%25([0-9a-f]{2})/gi, '%$1');
        this.search = m[7] && m[7] !== '?' ? m[7] : '';
        this.hash = m[8] && m[8] !== '#' ? m[8] : '';
        define(this, 'searchParams', new Params(this.search, s => { this.search = s ? '?' + s : ''; }));
      }
      static canParse(url, base) { try { new URL(url, base); return true; } catch { return false; } }
      static parse(url, base) { try { return new URL(url, base); } catch { return null; } }
      get host() { return this.hostname + (this.port ? ':' + this.port : ''); }
      get origin() { return this.protocol in defaultPort ? this.protocol + '//' + this.host : 'null'; }
      get href() {
        const auth = this.username ? this.username + (this.password ? ':' + this.password : '') + '@' : '';
        return this.protocol + (this.hostname || this.protocol in defaultPort ? '//' + auth + this.host : '') + this.pathname + this.search + this.hash;
      }
      toString() { return this.href; }
      toJSON() { return this.href; }
    },
  });

  // Text, above all text from tools, never becomes code: every way to the
  // compiler is closed, whichever function object it is reached from.
  const refuse = () => { throw new EvalError('code from text is switched off here: write the code directly'); };
  const closed = function Function() { return refuse(); };
  closed.prototype = Object.getPrototypeOf(refuse);
  for (const f of [function () {}, async function () {}, function* () {}, () => {}, async () => {}])
    Object.defineProperty(Object.getPrototypeOf(f), 'constructor', { value: closed, writable: false, configurable: false });
  Object.defineProperty(G, 'Function', { value: closed, writable: false, configurable: false });
  Object.defineProperty(G, 'eval', { value: function () { return refuse(); }, writable: false, configurable: false });
})(globalThis);

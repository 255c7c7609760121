// Built-ins that find out what a value is without the value noticing ask first,
// in a run in which answers are stood in for. Runs after the prelude. What is not
// known to be safe asks; a stage then ends earlier than it had to, no more.
(function (ask, is) {
  'use strict';
  const apply = Reflect.apply, construct = Reflect.construct, defineProperty = Object.defineProperty;
  const descriptor = Object.getOwnPropertyDescriptor, ownKeys = Reflect.ownKeys, isArray = Array.isArray;

  // Safe with stand-ins as arguments or elements: they pass them on, or what
  // they do to them is noticed by the stand-ins themselves.
  const passes = {
    'Array.prototype': ['push', 'unshift', 'pop', 'shift', 'slice', 'splice', 'concat', 'map', 'forEach', 'reduce', 'reduceRight', 'reverse', 'at', 'fill',
      'entries', 'keys', 'values', 'with', 'toReversed', 'toSpliced', 'copyWithin', 'join', Symbol.iterator],
    'Array': ['of', 'from', 'fromAsync'],
    'Promise': ['resolve', 'reject', 'all', 'allSettled', 'any', 'race', 'withResolvers', 'try'],
    'Promise.prototype': ['then', 'catch', 'finally'],
    'Function.prototype': ['call', 'apply', 'bind'],
    'Map.prototype': ['forEach', 'entries', 'keys', 'values', Symbol.iterator],
    'Set.prototype': ['forEach', 'entries', 'keys', 'values', Symbol.iterator],
    'Reflect': ['apply', 'construct'],
  };
  // Elements of this and of arrays among the arguments count too.
  const deep = { __proto__: null, includes: true, indexOf: true, lastIndexOf: true, sort: true, toSorted: true, flat: true };
  // What the callback gives is tested.
  const tested = { __proto__: null, filter: true, find: true, findIndex: true, findLast: true, findLastIndex: true, some: true, every: true, flatMap: true };

  const includes = Array.prototype.includes; // the plain one
  const elements = list => { if (isArray(list)) for (let i = 0; i < list.length; i++) ask(list[i]); };
  const wrap = (f, name, where) => {
    const key = typeof name === 'symbol' ? name.description : name;
    const wrapped = {
      [key](...args) {
        ask(this);
        for (let i = 0; i < args.length; i++) ask(args[i]);
        if (deep[name]) { elements(this); for (let i = 0; i < args.length; i++) elements(args[i]); }
        if (tested[name] && typeof args[0] === 'function') {
          const callback = args[0];
          args[0] = function (...a) { return ask(apply(callback, this, a)); };
        }
        return apply(f, this, args);
      },
    }[key];
    defineProperty(wrapped, 'name', { value: f.name, configurable: true });
    defineProperty(wrapped, 'length', { value: f.length, configurable: true });
    return wrapped;
  };
  const replace = (o, where) => {
    const safe = passes[where] || [];
    for (const k of ownKeys(o)) {
      if (k === 'constructor' || apply(includes, safe, [k])) continue;
      const d = descriptor(o, k);
      if (!d || !d.configurable || typeof d.value !== 'function' || isConstructorOf(o, k)) continue;
      d.value = wrap(d.value, k, where);
      defineProperty(o, k, d);
    }
  };
  const isConstructorOf = (o, k) => o === globalThis && typeof k === 'string' && k[0] >= 'A' && k[0] <= 'Z';

  // Keys of maps and sets are compared.
  for (const C of [Map, WeakMap]) {
    const { set } = C.prototype;
    defineProperty(C.prototype, 'set', { value: function (k, v) { ask(this); ask(k); return apply(set, this, [k, v]); }, writable: true, configurable: true });
  }
  passes['Map.prototype'].push('set');
  passes['WeakMap.prototype'] = ['set'];

  const classes = ['Object', 'Array', 'String', 'Number', 'Boolean', 'BigInt', 'Symbol', 'Date', 'RegExp', 'Error', 'TypeError', 'RangeError', 'SyntaxError',
    'EvalError', 'ReferenceError', 'URIError', 'AggregateError', 'Map', 'Set', 'WeakMap', 'WeakSet', 'WeakRef', 'FinalizationRegistry', 'Proxy', 'ArrayBuffer', 'DataView', 'Function', 'Promise',
    'Int8Array', 'Uint8Array', 'Uint8ClampedArray', 'Int16Array', 'Uint16Array', 'Int32Array', 'Uint32Array', 'Float32Array', 'Float64Array', 'BigInt64Array', 'BigUint64Array',
    'TextEncoder', 'TextDecoder', 'URL', 'URLSearchParams', 'Iterator'];
  for (const name of classes) {
    const C = globalThis[name];
    if (typeof C !== 'function') continue;
    replace(C, name);
    if (C.prototype) replace(C.prototype, name + '.prototype');
  }
  const typed = Object.getPrototypeOf(Int8Array);
  replace(typed, 'TypedArray');
  replace(typed.prototype, 'TypedArray.prototype');
  for (const name of ['Math', 'JSON', 'Reflect', 'crypto']) if (globalThis[name] && !Object.isFrozen(globalThis[name])) replace(globalThis[name], name);
  replace(globalThis, 'globalThis');

  // Constructors look at what they are given; new Set and new Map at what is in it.
  for (const name of classes) {
    const C = globalThis[name];
    if (typeof C !== 'function' || name === 'Promise' || name === 'Function') continue;
    const check = args => {
      for (let i = 0; i < args.length; i++) ask(args[i]);
      if (name === 'Set' || name === 'WeakSet') elements(args[0]);
      if ((name === 'Map' || name === 'WeakMap') && isArray(args[0])) for (const e of args[0]) { ask(e); if (isArray(e)) ask(e[0]); }
    };
    const P = new Proxy(C, {
      apply(t, self, args) { check(args); return apply(t, self, args); },
      construct(t, args, target) { check(args); return construct(t, args, target === P ? t : target); },
    });
    if (C.prototype) {
      const c = descriptor(C.prototype, 'constructor');
      if (c && c.value === C && c.configurable) defineProperty(C.prototype, 'constructor', { ...c, value: P });
    }
    const d = descriptor(globalThis, name);
    if (d && d.configurable) defineProperty(globalThis, name, { ...d, value: P });
  }
})

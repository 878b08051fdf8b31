"""Documents as text: conversion in a child process, what is kept of it, knowledge, and the tools that
search."""

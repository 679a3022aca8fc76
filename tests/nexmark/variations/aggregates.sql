-- GROUP BY EXTRACT, with HAVING.
-- sources: bid
CREATE TABLE by_minute AS SELECT bidder, EXTRACT(MINUTE FROM dateTime) AS m, COUNT(*) AS n, MIN(channel) AS c, SUM(price) AS s
 FROM bid GROUP BY bidder, EXTRACT(MINUTE FROM dateTime) HAVING SUM(price) > 1000000;

-- answer
SELECT bidder, EXTRACT(MINUTE FROM dateTime) AS m, COUNT(*) AS n, MIN(channel) AS c, SUM(price) AS s
 FROM bid GROUP BY bidder, EXTRACT(MINUTE FROM dateTime) HAVING SUM(price) > 1000000

-- next
-- SUM, AVG and MAX with FILTER.
-- sources: bid
CREATE TABLE filtered_sums AS SELECT channel, SUM(price) FILTER (WHERE bidder % 2 = 0) AS even, AVG(price) FILTER (WHERE bidder % 2 = 1) AS odd,
 MAX(price) FILTER (WHERE price < 500) AS m FROM bid GROUP BY channel;

-- answer
SELECT channel, SUM(price) FILTER (WHERE bidder % 2 = 0) AS even, AVG(price) FILTER (WHERE bidder % 2 = 1) AS odd,
 MAX(price) FILTER (WHERE price < 500) AS m FROM bid GROUP BY channel

-- next
-- SELECT DISTINCT of expressions.
-- sources: bid
CREATE TABLE distinct_pairs AS SELECT DISTINCT channel, bidder % 10 AS b FROM bid;

-- answer
SELECT DISTINCT channel, bidder % 10 AS b FROM bid

-- next
-- GROUP BY DATE_TRUNC.
-- sources: bid
CREATE TABLE distinct_by_minute AS SELECT channel, DATE_TRUNC('minute', dateTime) AS m, COUNT(DISTINCT auction) AS a, COUNT(DISTINCT bidder) FILTER (WHERE auction % 2 = 0) AS b
 FROM bid GROUP BY channel, DATE_TRUNC('minute', dateTime);

-- answer
SELECT channel, DATE_TRUNC('minute', dateTime) AS m, COUNT(DISTINCT auction) AS a, COUNT(DISTINCT bidder) FILTER (WHERE auction % 2 = 0) AS b
 FROM bid GROUP BY channel, DATE_TRUNC('minute', dateTime)

-- next
-- MIN of a text, MAX of a time.
-- sources: person
CREATE TABLE people AS SELECT state, COUNT(*) AS n, COUNT(DISTINCT city) AS cities, MIN(name) AS first, MAX(dateTime) AS last FROM person WHERE state <> 'WA' GROUP BY state;

-- answer
SELECT state, COUNT(*) AS n, COUNT(DISTINCT city) AS cities, MIN(name) AS first, MAX(dateTime) AS last FROM person WHERE state <> 'WA' GROUP BY state

-- next
-- One group for all rows.
-- sources: bid
CREATE TABLE everything AS SELECT COUNT(*) AS n, SUM(price) AS s, 1 AS k FROM bid GROUP BY 1;

-- answer
SELECT COUNT(*) AS n, SUM(price) AS s, 1 AS k FROM bid

-- next
-- CASE in aggregates.
-- sources: bid
CREATE TABLE cases AS SELECT auction, SUM(CASE WHEN price > 10000 THEN 1 ELSE 0 END) AS dear, AVG(CASE WHEN price > 10000 THEN price ELSE 0 END) AS mean, MAX(LEN(url)) AS longest
 FROM bid GROUP BY auction;

-- answer
SELECT auction, SUM(CASE WHEN price > 10000 THEN 1 ELSE 0 END) AS dear, AVG(CASE WHEN price > 10000 THEN price ELSE 0 END) AS mean, MAX(LEN(url)) AS longest
 FROM bid GROUP BY auction

-- next
-- SUM(DISTINCT …).
-- sources: bid
CREATE TABLE distinct_sums AS SELECT CAST(dateTime AS DATE) AS day, EXTRACT(HOUR FROM dateTime) AS hh, COUNT(DISTINCT bidder) AS b, SUM(DISTINCT price) AS s, COUNT(DISTINCT channel) FILTER (WHERE url LIKE '%channel_id%') AS c
 FROM bid GROUP BY CAST(dateTime AS DATE), EXTRACT(HOUR FROM dateTime);

-- answer
SELECT CAST(dateTime AS DATE) AS day, EXTRACT(HOUR FROM dateTime) AS hh, COUNT(DISTINCT bidder) AS b, SUM(DISTINCT price) AS s, COUNT(DISTINCT channel) FILTER (WHERE url LIKE '%channel_id%') AS c
 FROM bid GROUP BY CAST(dateTime AS DATE), EXTRACT(HOUR FROM dateTime)

-- next
-- GROUP BY expressions.
-- sources: bid
CREATE TABLE by_level AS SELECT SUBSTRING(channel, 1, 3) AS c, CASE WHEN price < 1000 THEN 'low' WHEN price < 100000 THEN 'mid' ELSE 'high' END AS level, COUNT(*) AS n, COUNT(DISTINCT auction) AS a
 FROM bid GROUP BY SUBSTRING(channel, 1, 3), CASE WHEN price < 1000 THEN 'low' WHEN price < 100000 THEN 'mid' ELSE 'high' END;

-- answer
SELECT SUBSTRING(channel, 1, 3) AS c, CASE WHEN price < 1000 THEN 'low' WHEN price < 100000 THEN 'mid' ELSE 'high' END AS level, COUNT(*) AS n, COUNT(DISTINCT auction) AS a
 FROM bid GROUP BY SUBSTRING(channel, 1, 3), CASE WHEN price < 1000 THEN 'low' WHEN price < 100000 THEN 'mid' ELSE 'high' END

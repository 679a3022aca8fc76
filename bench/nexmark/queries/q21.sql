-- Channel id: a number for the four hot channels, otherwise cut out of the url; bids with neither are dropped.
-- sources: bid
CREATE STREAM q21 AS
  SELECT auction, bidder, price, channel,
         CASE LOWER(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2'
              WHEN 'baidu' THEN '3' ELSE SUBSTRING(url FROM POSITION('channel_id=' IN url) + 11) END AS channel_id
  FROM bid
  WHERE LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu') OR POSITION('&channel_id=' IN url) > 0;

-- answer
SELECT auction, bidder, price, channel,
       CASE LOWER(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2'
            WHEN 'baidu' THEN '3' ELSE SUBSTRING(url FROM POSITION('channel_id=' IN url) + 11) END AS channel_id
FROM bid
WHERE LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu') OR POSITION('&channel_id=' IN url) > 0
